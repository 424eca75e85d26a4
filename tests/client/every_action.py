"""Program: every action of SQS with the boto3 on the path: python every_action.py URL PROTOCOL (which it must speak). An old one speaks the Query
protocol (F32). Prints the actions it called; run by test_every_action.py, one after the other."""

import json
import sys
import time
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

_, ENDPOINT, PROTOCOL = sys.argv
called: list[Any] = []


def main() -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}),
    )
    assert sqs.meta.service_model.metadata["protocol"] == PROTOCOL, boto3.__version__
    sqs.meta.events.register("before-call.sqs", lambda model, **_: called.append(model.name))
    queues(sqs)
    messages(sqs)
    fifo(sqs)
    dead_letters(sqs)
    refusals(sqs)
    assert set(called) == set(sqs.meta.service_model.operation_names)
    print(json.dumps({"boto3": boto3.__version__, "actions": sorted(set(called))}))


def queues(sqs: Any) -> None:
    attributes = {"VisibilityTimeout": "7", "MessageRetentionPeriod": "600"}
    url = sqs.create_queue(QueueName=f"{PROTOCOL}-q", Attributes=attributes, tags={"team": "blue & red"})[
        "QueueUrl"
    ]
    assert sqs.get_queue_url(QueueName=f"{PROTOCOL}-q")["QueueUrl"] == url
    assert sqs.list_queues(QueueNamePrefix=f"{PROTOCOL}-q")["QueueUrls"] == [url]
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="none-such")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "9", "DelaySeconds": "0"})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert shown["VisibilityTimeout"] == "9" and shown["MessageRetentionPeriod"] == "600", shown
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url)
    sqs.tag_queue(QueueUrl=url, Tags={"env": "<test>"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue & red", "env": "<test>"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "env"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    sqs.add_permission(
        QueueUrl=url, Label="l", AWSAccountIds=["111122223333", "444455556666"], Actions=["SendMessage", "*"]
    )
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert json.loads(policy)["Statement"][0]["Action"] == ["SQS:SendMessage", "SQS:*"]
    sqs.remove_permission(QueueUrl=url, Label="l")
    sqs.delete_queue(QueueUrl=url)


def messages(sqs: Any) -> None:
    url = sqs.create_queue(QueueName=f"{PROTOCOL}-m")["QueueUrl"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url), "an empty poll"
    body = 'é < & > " \r\n\t 😀'
    attributes = {
        "s": {"DataType": "String", "StringValue": "a\r\nb"},
        "n": {"DataType": "Number", "StringValue": "2.5"},
        "b": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff+/"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody=body,
        DelaySeconds=0,
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
    )
    assert sent["MD5OfMessageSystemAttributes"]
    (got,) = received(sqs, url, 1)
    assert got["Body"] == body and got["MessageId"] == sent["MessageId"], got
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert got["MessageAttributes"] == attributes, got
    assert (
        got["Attributes"]["AWSTraceHeader"] == "Root=1"
        and got["Attributes"]["ApproximateReceiveCount"] == "1"
    )
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    (got,) = received(sqs, url, 1)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    entries = [{"Id": str(i), "MessageBody": f"{i}", "MessageAttributes": attributes} for i in range(9)]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=[*entries, {"Id": "bad", "MessageBody": "\x01"}])
    assert len(answer["Successful"]) == 9
    assert [(row["Id"], row["SenderFault"], row["Code"]) for row in answer["Failed"]] == [
        ("bad", True, "InvalidMessageContents")
    ]
    found = received(sqs, url, 9)
    handles = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(found)]
    changes = [{**one, "VisibilityTimeout": 60} for one in handles]
    assert len(sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)["Successful"]) == 9
    assert len(sqs.delete_message_batch(QueueUrl=url, Entries=handles)["Successful"]) == 9
    sqs.send_message(QueueUrl=url, MessageBody="é" * 500_000)
    sqs.purge_queue(QueueUrl=url)


def fifo(sqs: Any) -> None:
    url = sqs.create_queue(QueueName=f"{PROTOCOL}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    first = sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="d")
    assert first["SequenceNumber"]
    (got,) = received(sqs, url, 1)
    assert got["Attributes"]["SequenceNumber"] == first["SequenceNumber"]


def dead_letters(sqs: Any) -> None:
    dead = sqs.create_queue(QueueName=f"{PROTOCOL}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    url = sqs.create_queue(
        QueueName=f"{PROTOCOL}-source", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    )
    url = url["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    received(sqs, url, 1, visibility=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    (letter,) = received(sqs, dead, 1)
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{PROTOCOL}-source")
    sqs.change_message_visibility(QueueUrl=dead, ReceiptHandle=letter["ReceiptHandle"], VisibilityTimeout=0)
    handle = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    try:
        sqs.cancel_message_move_task(TaskHandle=handle)
    except ClientError as refusal:  # it was quicker
        assert refusal.response["Error"]["Code"] == "InvalidParameterValue", refusal
    deadline = time.monotonic() + 120
    while sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"] not in (
        "COMPLETED",
        "CANCELLED",
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refusals(sqs: Any) -> None:
    for code, action, parameters in (
        ("AWS.SimpleQueueService.NonExistentQueue", "get_queue_url", {"QueueName": "none-such"}),
        ("ReceiptHandleIsInvalid", "delete_message", {"QueueUrl": f"{PROTOCOL}-m", "ReceiptHandle": "x"}),
        (
            "InvalidParameterValue",
            "send_message",
            {"QueueUrl": f"{PROTOCOL}-m", "MessageBody": "x" * 1_048_577},
        ),
        (
            "InvalidParameterValue",
            "send_message",
            {"QueueUrl": f"{PROTOCOL}-m", "MessageBody": "x" * 9_000_000},
        ),
        (
            "AWS.SimpleQueueService.EmptyBatchRequest",
            "delete_message_batch",
            {"QueueUrl": f"{PROTOCOL}-m", "Entries": []},
        ),
    ):
        try:
            getattr(sqs, action)(**parameters)
        except ClientError as refusal:
            assert refusal.response["Error"]["Code"] == code, (action, refusal)
        else:
            raise AssertionError(f"{action} was not refused")


def received(sqs: Any, url: str, count: int, visibility: int = 300) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 120
    while len(found) < count:
        assert time.monotonic() < deadline
        found += sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5, VisibilityTimeout=visibility,
            MessageAttributeNames=["All"], AttributeNames=["All"],
        ).get("Messages", [])  # fmt: skip
    return found


if __name__ == "__main__":
    main()
