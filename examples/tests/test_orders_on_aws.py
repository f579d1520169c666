"""Dead letters of orders.py on SQS and SNS: played in this process, and on a LocalStack.

Start one (`docker run -p 4566:4566 localstack/localstack:4.14.0`), name it in
ANGZARR_TEST_SQS_ENDPOINT, and the tests on it are no longer skipped. In CI they must run.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from orders import OrderCancelled

PATIENCE = timedelta(seconds=10)
CANCELLED = OrderCancelled(order_id="o-1", reason="changed my mind", refund="9.00")


class OnSqs:
    """What holds wherever the queues are; `cloud` says where."""

    backend = "sqs"

    @pytest.fixture
    def angzarr_settings(self, cloud):
        return {"dlq": {"backend": self.backend, **cloud.dlq}}

    def test_a_letter_is_in_the_queue_of_its_domain(self, cloud, angzarr_worker, outside):
        outside.answers["payments"] = [PermissionError("not ours to refund")]
        angzarr_worker.publish(CANCELLED, id="e-1")
        sqs = cloud.client("sqs")
        url = sqs.get_queue_url(QueueName="angzarr-dlq-order")["QueueUrl"]
        reply = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=5)
        (message,) = reply["Messages"]
        assert "not ours to refund" in message["Body"]
        assert message["MessageAttributes"]["domain"]["StringValue"] == "order"

    def test_the_analysis_finds_it_and_its_replay_works(self, angzarr_worker, outside, ledger):
        outside.answers["payments"] = [PermissionError("not ours to refund"), None]
        angzarr_worker.publish(CANCELLED, id="e-1")
        ledger.analyse(wait=PATIENCE)
        entry = ledger.only(handler_name="orders.refund")
        assert ledger.replay(entry).status == "resolved"
        assert outside.asked.count("refund o-1") == 2


class TestInThisProcess(OnSqs):
    @pytest.fixture
    def cloud(self, aws):
        return aws


class TestOnLocalStack(OnSqs):
    @pytest.fixture
    def cloud(self, localstack):
        return localstack


class TestThroughATopicOnLocalStack(TestOnLocalStack):
    backend = "sns_sqs"
