"""Infrastructure tools over SQS, as Terraform does it: make, set, and ask for attributes until they are what was wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Sid": "a", "Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}],
}  # fmt: skip
DOCUMENTS = ("Policy", "RedrivePolicy", "RedriveAllowPolicy")
"""Compared by what they mean: the order of keys is nobody's promise."""


@pytest.fixture
def sqs(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )  # fmt: skip


def is_as_wanted(sqs: Any, url: str, wanted: dict[str, str]) -> Callable[[], bool]:
    def look() -> bool:
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return all(meaning(name, found.get(name)) == meaning(name, value) for name, value in wanted.items())

    return look


def meaning(name: str, value: str | None) -> Any:
    return json.loads(value) if value and name in DOCUMENTS else value


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_queue_is_made_changed_ended_and_made_again(sqs: Any, topic: str, suffix: str) -> None:
    fifo = {"FifoQueue": "true"} if suffix else {}
    dead = sqs.create_queue(QueueName=f"{topic}-dead{suffix}", Attributes=fifo)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    for life in range(3):
        wanted = {
            "DelaySeconds": str(life), "MaximumMessageSize": "262144", "MessageRetentionPeriod": str(86_400 + life),
            "ReceiveMessageWaitTimeSeconds": "10", "VisibilityTimeout": str(30 + life), "Policy": json.dumps(POLICY),
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3 + life}),
            "RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"}), "SqsManagedSseEnabled": "false",
            "KmsMasterKeyId": "alias/aws/sqs", "KmsDataKeyReusePeriodSeconds": "300", **fifo,
        }  # fmt: skip
        if suffix:
            wanted |= {"ContentBasedDeduplication": "true", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}  # fmt: skip
        tags = {"managed-by": "terraform", "life": str(life)}
        url = sqs.create_queue(QueueName=f"{topic}{suffix}", Attributes=wanted, tags=tags)["QueueUrl"]
        until(is_as_wanted(sqs, url, wanted), 60)
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == tags
        # What was wanted is what it is: asked for again, it is the same queue; asked for otherwise, it is a conflict.
        assert sqs.create_queue(QueueName=f"{topic}{suffix}", Attributes=wanted)["QueueUrl"] == url
        with pytest.raises(sqs.exceptions.QueueNameExists):
            sqs.create_queue(QueueName=f"{topic}{suffix}", Attributes={**wanted, "VisibilityTimeout": "77"})
        sqs.send_message(QueueUrl=url, MessageBody=f"of life {life}", **({"MessageGroupId": "g"} if suffix else {}))  # fmt: skip
        changed = {"VisibilityTimeout": "99", "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0"}
        sqs.set_queue_attributes(QueueUrl=url, Attributes=changed)
        until(is_as_wanted(sqs, url, {**wanted, **changed}), 60)
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "", "RedrivePolicy": "", "RedriveAllowPolicy": "", "KmsMasterKeyId": ""})  # fmt: skip
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert not {*DOCUMENTS, "KmsMasterKeyId"} & set(found), (
            "emptied is gone, and no difference is left to apply"
        )
        sqs.tag_queue(QueueUrl=url, Tags={"life": "over"})
        sqs.untag_queue(QueueUrl=url, TagKeys=["managed-by"])
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"life": "over"}
        sqs.delete_queue(QueueUrl=url)
        until(partial(is_gone, sqs, url), 60)
    url = sqs.create_queue(QueueName=f"{topic}{suffix}", Attributes=fifo)["QueueUrl"]
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    until(is_as_wanted(sqs, url, {"VisibilityTimeout": "30", "DelaySeconds": "0", "ApproximateNumberOfMessages": "0"}), 60)  # fmt: skip


def is_gone(sqs: Any, url: str) -> bool:
    try:
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    except ClientError as refused:
        assert refused.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
        return True
    return False
