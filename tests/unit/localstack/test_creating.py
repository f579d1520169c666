from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from angzarr_aws import command
from angzarr_aws.command import DIFFERS, MISTAKE, main
from angzarr_aws.description import checked
from angzarr_aws.policies import from_topic, of_roles
from moto import mock_aws

from angzarr.adapters.sqs.fan_out import FanOut, lacks, policy_for, warnings
from angzarr.adapters.sqs.queues import weaknesses
from angzarr.testing.cloud import Aws

DOCS = Path(__file__).resolve().parents[3] / "docs"
WANTED = {
    "domains": ["order", "unknown"],
    "topics": True,
    "task_queues": {"celery": {"max_receives": 5}, "slow.fifo": {"visibility_timeout": 60}},
    "bucket": {"name": "angzarr-letters", "prefix": "dlq", "keep_days": 400},
}
VARIANTS = {
    "topics": WANTED,
    "queues": {**WANTED, "topics": False},
    "fifo": {**WANTED, "fifo": True},
    "kms": {**WANTED, "encryption": "alias/angzarr"},
    "plain": {"domains": ["order"], "encryption": "none"},
}


@pytest.fixture(autouse=True)
def aws(monkeypatch):
    for name in ("ANGZARR_DOMAINS", "AWS_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield Aws()


@pytest.fixture(params=VARIANTS.values(), ids=list(VARIANTS))
def file(request, tmp_path):
    return written(tmp_path, request.param)


def written(folder, wanted):
    path = folder / "wanted.json"
    path.write_text(json.dumps(wanted))
    return str(path)


def said(capsys):
    """Return what was called; the addresses of queues are AWS' own."""
    out = re.sub(r'"https://[^"]*/([^"/]+)"', r'"\1"', capsys.readouterr().out)
    return out.splitlines()


def test_a_dry_run_tells_what_the_run_then_does(file, capsys):
    assert main([file, "--dry-run", "--account", "123456789012"]) == 0
    told = said(capsys)
    assert main([file]) == 0
    assert said(capsys) == told
    assert len(told) > 2


def test_a_dry_run_needs_no_credentials_and_no_boto3(file, monkeypatch, capsys):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "boto3", None)
        without.delenv("AWS_ACCESS_KEY_ID")
        assert main([file, "--dry-run"]) == 0
        assert main([file]) == MISTAKE
    assert capsys.readouterr().err == "boto3 is not installed: pip install boto3\n"


def test_the_second_run_changes_nothing(file, capsys):
    assert main([file]) == 0
    said(capsys)
    assert main([file]) == 0
    made = [
        line
        for line in said(capsys)
        if re.search(r" (create_queue|create_bucket|subscribe|put|set)", line)
    ]
    assert made == []


def test_what_is_there_and_otherwise_is_told_and_left(aws, tmp_path, capsys):
    sqs = aws.client("sqs")
    url = sqs.create_queue(
        QueueName="angzarr-dlq-order", Attributes={"MessageRetentionPeriod": "345600"}
    )["QueueUrl"]
    assert main([written(tmp_path, WANTED)]) == DIFFERS
    err = capsys.readouterr().err
    assert err.startswith("the queue angzarr-dlq-order is there and was not changed: ")
    assert "MessageRetentionPeriod=345600 (wanted: 1209600)" in err
    kept = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert kept["MessageRetentionPeriod"] == "345600"


def test_a_bucket_whose_making_broke_off_is_told(aws, tmp_path, capsys):
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="angzarr-letters")
    assert main([written(tmp_path, WANTED)]) == DIFFERS
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the bucket angzarr-letters is there and was not changed: ")
    assert "public_access_block=nothing (wanted: " in line
    assert "bucket_lifecycle_configuration=nothing (wanted: " in line


def test_a_bucket_that_lets_bodies_expire_sooner_is_told_and_more_rules_are_not(
    aws, tmp_path, capsys
):
    assert main([written(tmp_path, WANTED)]) == 0
    s3 = aws.client("s3")
    rules = s3.get_bucket_lifecycle_configuration(Bucket="angzarr-letters")["Rules"]
    theirs = {
        "ID": "t", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 1},
    }  # fmt: skip
    changed = {"Bucket": "angzarr-letters", "LifecycleConfiguration": {"Rules": [*rules, theirs]}}
    s3.put_bucket_lifecycle_configuration(**changed)
    assert main([written(tmp_path, WANTED)]) == 0
    rules[0]["Expiration"]["Days"] = 3
    s3.put_bucket_lifecycle_configuration(**changed)
    capsys.readouterr()
    assert main([written(tmp_path, WANTED)]) == DIFFERS
    assert '"Days": 3' in capsys.readouterr().err


def test_what_is_made_is_nothing_that_the_code_would_warn_of(aws, tmp_path):
    main([written(tmp_path, WANTED)])
    sqs, sns = aws.client("sqs"), aws.client("sns")
    url = sqs.get_queue_url(QueueName="angzarr-dlq-order")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    arn = queue["QueueArn"].replace(":sqs:", ":sns:")
    topic = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    one = sns.list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"][0]["SubscriptionArn"]
    subscription = sns.get_subscription_attributes(SubscriptionArn=one)["Attributes"]
    found = FanOut(
        name="angzarr-dlq-order", topic_arn=arn, topic=topic, queue=queue, subscription=subscription
    )
    assert (lacks(found), warnings(found), weaknesses(queue)) == ([], [], [])


def test_the_policy_of_a_queue_is_the_codes():
    queue, topic = "arn:aws:sqs:r:1:angzarr-dlq-a", "arn:aws:sns:r:1:angzarr-dlq-a"
    assert json.loads(from_topic(queue, topic)) == json.loads(policy_for(queue, topic))


def actions(page_cell):
    """Return what a cell of the page's table names; the service is said once, in front."""
    found, service = set(), ""
    for word in re.findall(r"`([\w:]+)`", page_cell):
        service = f"{word.partition(':')[0]}:" if ":" in word else service
        found.add(word if ":" in word else service + word)
    return found


@pytest.mark.parametrize(("topics", "row"), [(False, "sqs"), (True, "sns_sqs")])
def test_the_roles_may_do_what_the_page_says_and_no_more(topics, row):
    page = (DOCS / "how-to" / "choose-servers.md").read_text()
    cells = re.search(rf"^\| `{row}` \| (`sqs:Get.*) \| (.*) \|$", page, re.MULTILINE)
    queues = re.search(r"^\| `sqs` \| (`sqs:Get.*) \| (.*) \|$", page, re.MULTILINE)
    roles = of_roles(checked({"domains": ["order"], "topics": topics}), "eu-west-1", "1")
    for role, cell in (("worker", cells[1]), ("analysis", queues[2])):
        policy = json.loads(json.dumps(roles[role]))
        assert policy["Version"] == "2012-10-17"
        allowed = {action for one in policy["Statement"] for action in one["Action"]}
        assert allowed == actions(cell)
        assert {one["Effect"] for one in policy["Statement"]} == {"Allow"}
        assert all(":angzarr-dlq-*" in one["Resource"] for one in policy["Statement"])


def test_buckets_tasks_and_keys_bring_the_rights_to_them_alone():
    roles = of_roles(
        checked({**WANTED, "encryption": "arn:aws:kms:eu-west-1:1:key/k"}), "eu-west-1", "1"
    )
    rights = {
        role: {
            (action, str(one["Resource"]))
            for one in policy["Statement"]
            for action in one["Action"]
            if not action.startswith(("sqs:", "sns:"))
        }
        for role, policy in roles.items()
    }
    letters, key = "arn:aws:s3:::angzarr-letters/dlq/*", "arn:aws:kms:eu-west-1:1:key/k"
    keys = {("kms:GenerateDataKey", key), ("kms:Decrypt", key)}
    assert rights == {
        "worker": {("s3:PutObject", letters), *keys},
        "analysis": {
            ("s3:GetObject", letters),
            ("s3:ListBucket", "arn:aws:s3:::angzarr-letters"),
            *keys,
        },
    }


def test_policies_are_printed_as_json(file, capsys):
    assert main([file, "--policies", "--account", "1"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"worker", "analysis"}


def test_policies_of_no_account_are_not_printed(file, capsys):
    assert main([file, "--policies"]) == MISTAKE
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "say --account" in told.err


def test_domains_of_the_environment_stand_in_for_the_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ANGZARR_DOMAINS", " shop , pay,")
    assert main([written(tmp_path, VARIANTS["plain"]), "--dry-run"]) == 0
    assert "angzarr-dlq-shop" in (out := capsys.readouterr().out)
    assert "angzarr-dlq-pay" in out
    assert "angzarr-dlq-order" not in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--endpoint-url", "http://u:s3cret@127.0.0.1:1"], "no answer from http://127.0.0.1:1"),
        (["--profile", "nobodys"], "nobodys"),
        (["nowhere.json"], "nowhere.json cannot be read"),
    ],
)
def test_what_cannot_work_is_one_sentence(arguments, told, tmp_path, capsys):
    if arguments[0] == "nowhere.json":
        path, arguments = str(tmp_path / arguments[0]), []
    else:
        path = written(tmp_path, VARIANTS["plain"])
    assert main([path, *arguments]) == MISTAKE
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert "s3cret" not in err


def test_without_a_region_nothing_is_begun(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert main([written(tmp_path, VARIANTS["plain"])]) == MISTAKE
    assert capsys.readouterr().err.startswith("no AWS region is known: say --region")


def test_what_aws_does_not_allow_is_named(monkeypatch, tmp_path, capsys):
    from botocore.exceptions import ClientError

    def denied(self, name, parameters):
        told = {"Code": "AccessDenied", "Message": "User: x is not\nauthorized"}
        raise ClientError({"Error": told}, name)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", denied)
    assert main([written(tmp_path, VARIANTS["plain"])]) == MISTAKE
    assert capsys.readouterr().err == (
        "AWS does not allow sqs:GetQueueUrl: allow it to this role (User: x is not authorized)\n"
    )


def test_the_file_that_is_there_can_be_read(capsys):
    assert main(["--dry-run"]) == 0
    assert "angzarr-dlq-order" in capsys.readouterr().out
    assert command.DEFAULT.is_file()


def test_the_page_shows_what_a_dry_run_prints_and_the_file_that_is_there(capsys):
    page = (DOCS / "how-to" / "use-localstack.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(shown) == json.loads(command.DEFAULT.read_text())
    line, *told = re.findall(
        r"^\$ python localstack/angzarr_aws (.*)\n((?:.+\n)+?)```", page, re.MULTILINE
    )[0]
    assert main(line.split()) == 0
    assert capsys.readouterr().out.startswith(told[0])
