"""Policies: who may do what, and no more. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from angzarr_aws import names
from angzarr_aws.description import NO_ENCRYPTION, SSE_SQS, Description

VERSION = "2012-10-17"

_WORKER_SQS = ("sqs:GetQueueUrl", "sqs:SendMessage", "sqs:GetQueueAttributes")
_WORKER_TOPIC_QUEUE = ("sqs:GetQueueUrl", "sqs:GetQueueAttributes")
_WORKER_SNS = (
    "sns:Publish",
    "sns:GetTopicAttributes",
    "sns:GetSubscriptionAttributes",
    "sns:ListSubscriptionsByTopic",
)
_ANALYSIS_SQS = (
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:ChangeMessageVisibility",
    "sqs:GetQueueAttributes",
)
#: What kombu's transport does with the queues of tasks; it asks for their names.
_TASKS = (*_ANALYSIS_SQS, "sqs:SendMessage")


def from_topic(queue_arn: str, topic_arn: str) -> str:
    """Return the policy of a queue that lets that topic alone send to it.

    *topic_arn* may end in ``*``, for all of one account.
    """
    comparison = "ArnLike" if topic_arn.endswith("*") else "ArnEquals"
    statement = {
        "Sid": "angzarr",
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {comparison: {"aws:SourceArn": topic_arn}},
    }
    return json.dumps({"Version": VERSION, "Statement": [statement]})


def of_roles(wanted: Description, region: str, account: str) -> dict[str, dict[str, Any]]:
    """Return the policies of the workers and of the analysis worker, where nothing is created."""
    where = f"{region}:{account}"
    letters = f"arn:aws:sqs:{where}:{names.PREFIX}*"
    topics = f"arn:aws:sns:{where}:{names.PREFIX}*"
    tasks = [
        f"arn:aws:sqs:{where}:{names.tasks(queue, wanted.task_queue_prefix)}"
        for queue in wanted.task_queues
    ]
    of_tasks = [_allow(_TASKS, *tasks), _allow(("sqs:ListQueues",), "*")] if tasks else []
    worker = [_allow(_WORKER_TOPIC_QUEUE if wanted.topics else _WORKER_SQS, letters)]
    if wanted.topics:
        worker.append(_allow(_WORKER_SNS, topics))
    analysis = [_allow(_ANALYSIS_SQS, letters)]
    return {
        "worker": _document(
            [*worker, *of_tasks, *_bucket(wanted, ("s3:PutObject",)), *_key(wanted, where)]
        ),
        "analysis": _document(
            [
                *analysis,
                *of_tasks,
                *_bucket(wanted, ("s3:GetObject",), lists=True),
                *_key(wanted, where),
            ]
        ),
    }


def _bucket(
    wanted: Description, actions: Sequence[str], *, lists: bool = False
) -> list[dict[str, Any]]:
    if wanted.bucket is None:
        return []
    arn = f"arn:aws:s3:::{wanted.bucket.name}"
    prefix = f"{wanted.bucket.prefix}/*" if wanted.bucket.prefix else "*"
    return [
        _allow(actions, f"{arn}/{prefix}"),
        *([_allow(("s3:ListBucket",), arn)] if lists else []),
    ]


def _key(wanted: Description, where: str) -> list[dict[str, Any]]:
    """Return what a key of one's own needs; an alias is no resource that a policy can name."""
    key = wanted.encryption
    if key in (SSE_SQS, NO_ENCRYPTION):
        return []
    if key.startswith("arn:") and ":alias/" not in key:
        resource = key
    else:
        resource = f"arn:aws:kms:{where}:key/" + ("*" if "alias/" in key else key)
    return [_allow(("kms:GenerateDataKey", "kms:Decrypt"), resource)]


def _allow(actions: Sequence[str], *resources: str) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": resources[0] if len(resources) == 1 else list(resources),
    }


def _document(statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": VERSION, "Statement": list(statements)}
