"""boto3 against a real broker: every action of SQS, its errors, FIFO, delays, long polls, and the Kafka side (Q1-Q7)."""

from __future__ import annotations

import hashlib
import itertools
import json
import subprocess
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen
from xml.etree import ElementTree

import boto3
import confluent_kafka as ck
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from headrace.testing.broker_process import BrokerProcess

Sqs = Any
_numbers = itertools.count()


def connect(broker: BrokerProcess, key: str = "x", secret: str = "y") -> Sqs:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name="eu-west-1", aws_access_key_id=key, aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


@pytest.fixture
def sqs(broker: BrokerProcess) -> Sqs:
    return connect(broker)


@pytest.fixture
def name() -> str:
    return f"queue-{next(_numbers)}"


@pytest.fixture
def queue(sqs: Sqs, name: str) -> str:
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url


@pytest.fixture(scope="module")
def strict() -> Iterator[Sqs]:
    with BrokerProcess(arguments=("--sqs-strict",)) as broker:
        yield connect(broker)


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


def receive(sqs: Sqs, queue: str, count: int = 10, wait: int = 5, **options: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=queue, MaxNumberOfMessages=count, WaitTimeSeconds=wait, MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["All"], **options,
    )  # fmt: skip
    found: list[dict[str, Any]] = answer.get("Messages", [])
    return found


def attribute(sqs: Sqs, queue: str, name: str) -> str:
    value: str = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"][name]
    return value


def refused(code: str, call: Callable[..., Any], **parameters: Any) -> ClientError:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    return caught.value


# -- messages --------------------------------------------------------------------------------------------------------


def test_send_receive_delete(sqs: Sqs, queue: str) -> None:
    sent = sqs.send_message(
        QueueUrl=queue,
        MessageBody="hällo",
        MessageAttributes={
            "a": {"DataType": "String", "StringValue": "1"},
            "n": {"DataType": "Number", "StringValue": "2.5"},
            "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}},
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5("hällo".encode(), usedforsecurity=False).hexdigest()
    (message,) = receive(sqs, queue)
    assert message["Body"] == "hällo" and message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"]["b"]["BinaryValue"] == b"\x00\xff"
    assert message["MessageAttributes"]["n"]["DataType"] == "Number"
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert attribute(sqs, queue, "ApproximateNumberOfMessagesNotVisible") == "1"
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])  # AWS: no error
    assert attribute(sqs, queue, "ApproximateNumberOfMessagesNotVisible") == "0"
    assert receive(sqs, queue, wait=0) == []


def test_batches(sqs: Sqs, queue: str) -> None:
    entries = [{"Id": str(i), "MessageBody": f"m{i}"} for i in range(9)]
    answer = sqs.send_message_batch(QueueUrl=queue, Entries=[*entries, {"Id": "bad", "MessageBody": "\x00"}])
    assert len(answer["Successful"]) == 9
    assert [(row["Id"], row["Code"], row["SenderFault"]) for row in answer["Failed"]] == [
        ("bad", "InvalidMessageContents", True)
    ]
    messages: list[dict[str, Any]] = []
    while len(messages) < 9:
        messages += receive(sqs, queue)
    handles = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)]
    changes = [{**handle, "VisibilityTimeout": 100} for handle in handles]
    assert len(sqs.change_message_visibility_batch(QueueUrl=queue, Entries=changes[:5])["Successful"]) == 5
    answer = sqs.delete_message_batch(
        QueueUrl=queue, Entries=[*handles, {"Id": "x", "ReceiptHandle": "nonsense"}]
    )
    assert len(answer["Successful"]) == 9
    assert answer["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"


def test_r56_a_batch_deletes_what_its_receipts_hold_and_nothing_else(sqs: Sqs, queue: str) -> None:
    """A stale receipt behind a good one deletes neither its own message nor keeps the other."""
    for body in ("kept", "deleted"):
        sqs.send_message(QueueUrl=queue, MessageBody=body)
    held: dict[str, str] = {}
    while len(held) < 2:
        held |= {message["Body"]: message["ReceiptHandle"] for message in receive(sqs, queue)}
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=held["kept"], VisibilityTimeout=0)
    (again,) = receive(sqs, queue)
    assert again["Body"] == "kept"
    receipts = [held["deleted"], held["kept"]]
    entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
    sqs.delete_message_batch(QueueUrl=queue, Entries=entries)
    with pytest.raises(ClientError):  # it is not in flight any more
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=held["deleted"], VisibilityTimeout=0)
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=0)
    (left,) = receive(sqs, queue)
    assert left["Body"] == "kept"
    assert receive(sqs, queue, wait=0) == []


def test_visibility(sqs: Sqs, queue: str) -> None:
    """Q2: 0 gives back at once; an expired lock redelivers; the old receipt deletes nothing (R56)."""
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (first,) = receive(sqs, queue)
    assert receive(sqs, queue, wait=0) == []
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (second,) = receive(sqs, queue, VisibilityTimeout=1)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    began = time.monotonic()
    (third,) = receive(sqs, queue)
    assert time.monotonic() - began > 0.9
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"])
    refused(
        "AWS.SimpleQueueService.MessageNotInflight", sqs.change_message_visibility,
        QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=9,
    )  # fmt: skip
    assert attribute(sqs, queue, "ApproximateNumberOfMessagesNotVisible") == "1", (
        "the stale delete did nothing"
    )
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=third["ReceiptHandle"])


def test_a_long_poll_ends_with_the_message(sqs: Sqs, broker: BrokerProcess, queue: str) -> None:
    timer = threading.Timer(0.5, lambda: connect(broker).send_message(QueueUrl=queue, MessageBody="late"))
    timer.start()
    began = time.monotonic()
    assert [m["Body"] for m in receive(sqs, queue, wait=20)] == ["late"]
    assert time.monotonic() - began > 0.3
    timer.join()


def test_delays(sqs: Sqs, queue: str) -> None:
    """Q7: not before its time, and longer than AWS allows if not strict."""
    began = time.monotonic()
    sqs.send_message(QueueUrl=queue, MessageBody="tomorrow", DelaySeconds=86_401)
    sqs.send_message(QueueUrl=queue, MessageBody="soon", DelaySeconds=1)
    sqs.send_message(QueueUrl=queue, MessageBody="now", DelaySeconds=0)
    found: list[str] = []
    while len(found) < 2:
        found += [m["Body"] for m in receive(sqs, queue)]
        assert "soon" not in found or time.monotonic() - began >= 1.0
    assert found == ["now", "soon"]
    assert attribute(sqs, queue, "ApproximateNumberOfMessagesDelayed") == "1"


# -- FIFO ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fifo(sqs: Sqs, name: str) -> str:
    url: str = sqs.create_queue(
        QueueName=f"{name}.fifo",
        Attributes={
            "FifoQueue": "true",
            "DeduplicationScope": "messageGroup",
            "FifoThroughputLimit": "perMessageGroupId",
        },
    )["QueueUrl"]
    return url


def test_fifo_keeps_the_order_of_each_group(sqs: Sqs, fifo: str) -> None:
    """R59: one outstanding batch for each group."""
    numbers = []
    for i in range(6):
        sent = sqs.send_message(
            QueueUrl=fifo, MessageBody=f"{i}", MessageGroupId="ab"[i % 2], MessageDeduplicationId=f"d{i}"
        )
        numbers.append(int(sent["SequenceNumber"]))
    assert numbers == sorted(set(numbers))
    first = receive(sqs, fifo, count=1, ReceiveRequestAttemptId="attempt-1")
    group = first[0]["Attributes"]["MessageGroupId"]
    others = receive(sqs, fifo)
    assert {m["Attributes"]["MessageGroupId"] for m in others} == {"ab".replace(group, "")}
    assert receive(sqs, fifo, wait=0) == [], "both groups have a batch out"
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=first[0]["ReceiptHandle"], VisibilityTimeout=0)
    again = receive(sqs, fifo)
    assert [m["Body"] for m in again] == [str(i) for i in range(6) if "ab"[i % 2] == group]
    assert again[0]["Attributes"]["SequenceNumber"] == str(numbers[int(again[0]["Body"])])


def test_fifo_drops_duplicates(sqs: Sqs, fifo: str) -> None:
    ids = [
        sqs.send_message(QueueUrl=fifo, MessageBody=body, MessageGroupId="g", MessageDeduplicationId="same")[
            "MessageId"
        ]
        for body in ("one", "two")
    ]
    assert ids[0] == ids[1]
    assert [m["Body"] for m in receive(sqs, fifo)] == ["one"]


def test_f2_the_same_body_in_three_groups_is_three_messages(sqs: Sqs, name: str) -> None:
    """F2: DeduplicationScope=messageGroup; the same body again in a group is the first one."""
    scope = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true", **scope}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    ids = [sqs.send_message(QueueUrl=url, MessageBody="same", MessageGroupId=g)["MessageId"] for g in "abca"]
    assert len(set(ids)) == 3 and ids[0] == ids[3]
    entries = [{"Id": g, "MessageBody": "same", "MessageGroupId": g} for g in "bd"]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    assert {row["Id"]: row["MessageId"] == ids[1] for row in sent} == {"b": True, "d": False}
    assert Counter(m["Attributes"]["MessageGroupId"] for m in receive(sqs, url)) == Counter("abcd")
    sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    )
    ids = [sqs.send_message(QueueUrl=url, MessageBody="new", MessageGroupId=g)["MessageId"] for g in "xy"]
    assert ids[0] == ids[1]


def test_f3_a_purge_forgets_deduplication_ids(sqs: Sqs, fifo: str) -> None:
    """F3: the next send with an id from before was dropped with a 200."""
    first = sqs.send_message(QueueUrl=fifo, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="id")
    sqs.purge_queue(QueueUrl=fifo)
    again = sqs.send_message(QueueUrl=fifo, MessageBody="2", MessageGroupId="g", MessageDeduplicationId="id")
    assert again["MessageId"] != first["MessageId"]
    assert [m["Body"] for m in receive(sqs, fifo)] == ["2"]


def test_fifo_wants_its_parameters(sqs: Sqs, fifo: str, queue: str) -> None:
    send = sqs.send_message
    refused("MissingParameter", send, QueueUrl=fifo, MessageBody="x")
    refused("InvalidParameterValue", send, QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
    refused(
        "InvalidParameterValue", send, QueueUrl=fifo, MessageBody="x", MessageGroupId="g",
        MessageDeduplicationId="d", DelaySeconds=5,
    )  # fmt: skip
    refused("InvalidParameterValue", send, QueueUrl=queue, MessageBody="x", MessageDeduplicationId="d")
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="tenant")  # fair queues
    assert receive(sqs, queue)[0]["Attributes"]["MessageGroupId"] == "tenant"


# -- queues ----------------------------------------------------------------------------------------------------------


def test_queues_themselves(sqs: Sqs, name: str) -> None:
    url = sqs.create_queue(
        QueueName=name,
        Attributes={"VisibilityTimeout": "7", "MessageRetentionPeriod": "600"},
        tags={"team": "blue"},
    )["QueueUrl"]
    assert sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "7"})["QueueUrl"] == url
    refused("QueueAlreadyExists", sqs.create_queue, QueueName=name, Attributes={"VisibilityTimeout": "8"})
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert url in sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "7" and attributes["DelaySeconds"] == "0"
    assert attributes["QueueArn"] == f"arn:aws:sqs:eu-west-1:000000000000:{name}"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "9"})
    assert attribute(sqs, url, "VisibilityTimeout") == "9"
    sqs.tag_queue(QueueUrl=url, Tags={"env": "test"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue", "env": "test"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"env": "test"}
    sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    assert json.loads(attribute(sqs, url, "Policy"))["Statement"][0]["Sid"] == "l"
    sqs.remove_permission(QueueUrl=url, Label="l")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.purge_queue(QueueUrl=url)
    refused("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=url)
    assert attribute(sqs, url, "ApproximateNumberOfMessages") == "0"
    sqs.delete_queue(QueueUrl=url)
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName=name)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=url, MessageBody="x")


def test_queues_come_in_pages(sqs: Sqs, name: str) -> None:
    for i in range(3):
        sqs.create_queue(QueueName=f"{name}-{i}")
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=f"{name}-", PaginationConfig={"PageSize": 2}
    )
    assert [len(page["QueueUrls"]) for page in pages] == [2, 1]


def test_retention_is_the_topics(sqs: Sqs, broker: BrokerProcess, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"MessageRetentionPeriod": "600"})["QueueUrl"]

    def retention_ms() -> str:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        value: str = future.result()["retention.ms"].value
        return value

    assert retention_ms() == "600000"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "60"})
    assert retention_ms() == "60000"


# -- dead letters and move tasks ---------------------------------------------------------------------------------------


def test_dead_letters_and_back(sqs: Sqs, name: str) -> None:
    """Q3: the second failure lands in the dead-letter queue; a move task brings it back, each message once (R60)."""
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = attribute(sqs, dead, "QueueArn")
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    bodies = [f"m{i}" for i in range(8)]
    for body in bodies:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    for _ in range(2):
        seen = 0
        while seen < len(bodies):
            seen += len(receive(sqs, url, VisibilityTimeout=0))
    until(lambda: attribute(sqs, dead, "ApproximateNumberOfMessages") == "8")
    letters = receive(sqs, dead, VisibilityTimeout=0)
    assert letters[0]["Attributes"]["DeadLetterQueueSourceArn"] == attribute(sqs, url, "QueueArn")

    refused("ResourceNotFoundException", sqs.start_message_move_task, SourceArn=arn + "x")
    refused("InvalidParameterValue", sqs.start_message_move_task, SourceArn=attribute(sqs, url, "QueueArn"))
    handle = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    refused("InvalidParameterValue", sqs.start_message_move_task, SourceArn=arn)
    sqs.cancel_message_move_task(TaskHandle=handle)

    def status() -> str:
        found: str = sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"]
        return found

    until(lambda: status() == "CANCELLED")
    refused("InvalidParameterValue", sqs.cancel_message_move_task, TaskHandle=handle)
    sqs.start_message_move_task(SourceArn=arn)
    until(lambda: status() == "COMPLETED")
    moved: list[str] = []
    while len(moved) < len(bodies):
        batch = receive(sqs, url)
        assert batch, "all of them are there"
        moved += [m["Body"] for m in batch]
    assert sorted(moved) == bodies
    assert attribute(sqs, dead, "ApproximateNumberOfMessages") == "0"


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "action", "parameters"),
    [
        ("InvalidParameterValue", "create_queue", {"QueueName": "not/allowed"}),
        ("InvalidParameterValue", "create_queue", {"QueueName": "x" * 81}),
        ("InvalidParameterValue", "create_queue", {"QueueName": "a.fifo"}),
        ("InvalidAttributeName", "create_queue", {"QueueName": "bad", "Attributes": {"Colour": "red"}}),
        ("InvalidAttributeValue", "create_queue", {"QueueName": "bad", "Attributes": {"VisibilityTimeout": "43201"}}),
        ("InvalidAttributeValue", "create_queue", {"QueueName": "bad", "Attributes": {"DelaySeconds": "901"}}),
        ("InvalidParameterValue", "create_queue", {"QueueName": "bad", "Attributes": {"RedrivePolicy": "{}"}}),
        ("InvalidParameterValue", "send_message", {"DelaySeconds": 901}),
        ("InvalidParameterValue", "send_message", {"DelaySeconds": -1}),
        ("InvalidMessageContents", "send_message", {"MessageBody": "\x01"}),
        ("InvalidParameterValue", "send_message", {"MessageBody": "x" * (1 << 20) + "x"}),
        ("InvalidParameterValue", "send_message", {"MessageAttributes": {"AWS.x": {"DataType": "String", "StringValue": "1"}}}),
        ("InvalidParameterValue", "send_message", {"MessageAttributes": {"n": {"DataType": "Number", "StringValue": "one"}}}),
        ("InvalidParameterValue", "send_message", {"MessageAttributes": {f"a{i}": {"DataType": "String", "StringValue": "1"} for i in range(11)}}),
        ("AWS.SimpleQueueService.EmptyBatchRequest", "send_message_batch", {"Entries": []}),
        ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "send_message_batch", {"Entries": [{"Id": str(i), "MessageBody": "x"} for i in range(11)]}),
        ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "send_message_batch", {"Entries": [{"Id": "a", "MessageBody": "x"}] * 2}),
        ("AWS.SimpleQueueService.InvalidBatchEntryId", "send_message_batch", {"Entries": [{"Id": "a b", "MessageBody": "x"}]}),
        ("AWS.SimpleQueueService.BatchRequestTooLong", "send_message_batch", {"Entries": [{"Id": str(i), "MessageBody": "x" * 600_000} for i in range(2)]}),
        ("InvalidParameterValue", "receive_message", {"MaxNumberOfMessages": 11}),
        ("InvalidParameterValue", "receive_message", {"MaxNumberOfMessages": 0}),
        ("InvalidParameterValue", "receive_message", {"WaitTimeSeconds": 21}),
        ("InvalidParameterValue", "receive_message", {"VisibilityTimeout": 43_201}),
        ("InvalidAttributeName", "get_queue_attributes", {"AttributeNames": ["Colour"]}),
        ("InvalidAttributeValue", "set_queue_attributes", {"Attributes": {"MessageRetentionPeriod": "59"}}),
        ("ReceiptHandleIsInvalid", "delete_message", {"ReceiptHandle": "nonsense"}),
        ("ReceiptHandleIsInvalid", "change_message_visibility", {"ReceiptHandle": "nonsense", "VisibilityTimeout": 1}),
        ("OverLimit", "add_permission", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"] * 8}),
        ("InvalidParameterValue", "remove_permission", {"Label": "none"}),
    ],
)  # fmt: skip
def test_strict_limits(strict: Sqs, code: str, action: str, parameters: dict[str, Any]) -> None:
    """Every limit gets AWS's error and changes nothing."""
    strict.create_queue(QueueName="limits")
    url = strict.get_queue_url(QueueName="limits")["QueueUrl"]
    before = strict.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    if action == "send_message":
        parameters = {"MessageBody": "x", **parameters}
    if action != "create_queue":
        parameters = {"QueueUrl": url, **parameters}
    refused(code, getattr(strict, action), **parameters)
    assert strict.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"] == before
    assert [found.rsplit("/", 1)[1] for found in strict.list_queues(QueueNamePrefix="limits")["QueueUrls"]] == ["limits"]  # fmt: skip


def test_a_name_rests_after_a_delete_when_strict(strict: Sqs) -> None:
    url = strict.create_queue(QueueName="gone")["QueueUrl"]
    strict.delete_queue(QueueUrl=url)
    refused("AWS.SimpleQueueService.QueueDeletedRecently", strict.create_queue, QueueName="gone")


@pytest.mark.parametrize(
    ("target", "body", "code"),
    [
        ("AmazonSQS.SendMessage", b"not json", "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b"[]", "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl": 5, "MessageBody": "x"}', "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b'{"MessageBody": "x"}', "MissingParameter"),
        ("AmazonSQS.SendMessageBatch", b'{"QueueUrl": "limits", "Entries": [5]}', "InvalidParameterValue"),
        ("AmazonSQS.CreateQueue", b'{"QueueName": "bad", "Attributes": {"DelaySeconds": 5}}', "InvalidAttributeValue"),
        ("AmazonSQS.UntagQueue", b'{"QueueUrl": "limits", "TagKeys": [{}]}', "InvalidParameterValue"),
        ("AmazonSQS.AddPermission", b'{"QueueUrl": "limits", "Label": "l", "AWSAccountIds": [1], "Actions": [{}]}', "InvalidParameterValue"),
        ("AmazonSQS.GetQueueAttributes", b'{"QueueUrl": "limits", "AttributeNames": [[]]}', "InvalidParameterValue"),
        ("AmazonSQS.ReceiveMessage", b'{"QueueUrl": "limits", "MaxNumberOfMessages": true}', "InvalidParameterValue"),
        ("AmazonSQS.ReceiveMessage", b'{"QueueUrl": "limits", "MessageSystemAttributeNames": [{}]}', "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl": "limits", "MessageBody": "x", "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "Binary", "BinaryValue": "AA=="}}}', "InvalidParameterValue"),
        ("AmazonSQS.SendMessage", b'{"QueueUrl": "limits", "MessageBody": "x", "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": 5}}}', "InvalidParameterValue"),
        ("AmazonSQS.Dance", b"{}", "InvalidAction"),
        ("Other.Thing", b"{}", "InvalidAction"),
    ],
)  # fmt: skip
def test_wrong_types(strict: Sqs, target: str, body: bytes, code: str) -> None:
    """Never a 500: what botocore would not even send gets AWS's shape all the same."""
    strict.create_queue(QueueName="limits")
    request = Request(strict.meta.endpoint_url, body, {"X-Amz-Target": target}, method="POST")
    from urllib.error import HTTPError

    with pytest.raises(HTTPError) as caught:
        urlopen(request)
    assert caught.value.code == 400
    assert caught.value.headers["x-amzn-query-error"] == f"{code};Sender"
    assert json.loads(caught.value.read())["__type"].startswith("com.amazonaws.sqs#")


# -- the older protocol, and signatures --------------------------------------------------------------------------------


def test_the_query_protocol(broker: BrokerProcess, queue: str, sqs: Sqs) -> None:
    space = {"s": "http://queue.amazonaws.com/doc/2012-11-05/"}

    def ask(url: str, **fields: str) -> ElementTree.Element:
        body = urlencode({"Version": "2012-11-05", **fields}).encode()
        with urlopen(Request(url, body)) as response:
            return ElementTree.fromstring(response.read())

    sent = ask(
        queue, Action="SendMessage", MessageBody="über", DelaySeconds="0",
        **{"MessageAttribute.1.Name": "b", "MessageAttribute.1.Value.DataType": "Binary",
           "MessageAttribute.1.Value.BinaryValue": b64encode(b"\x01").decode()},
    )  # fmt: skip
    got = ask(broker.url, Action="ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages="10", WaitTimeSeconds="5",
              **{"MessageAttributeName.1": "All", "AttributeName.1": "All"})  # fmt: skip
    assert got.findtext(".//s:Body", None, space) == "über"
    assert got.findtext(".//s:MessageId", None, space) == sent.findtext(".//s:MessageId", None, space)
    assert got.findtext(".//s:MessageAttribute/s:Value/s:BinaryValue", None, space) == "AQ=="
    handle = got.findtext(".//s:ReceiptHandle", None, space)
    assert handle is not None
    ask(queue, Action="DeleteMessage", ReceiptHandle=handle)
    # F32: older SDKs fail where a result is missing, and AWS sends none for an action that answers nothing.
    empty = ask(queue, Action="ReceiveMessage")
    assert [child.tag.rpartition("}")[2] for child in empty] == ["ReceiveMessageResult", "ResponseMetadata"]
    gone = ask(queue, Action="DeleteMessage", ReceiptHandle=handle)
    assert [child.tag.rpartition("}")[2] for child in gone] == ["ResponseMetadata"]
    with pytest.raises(HTTPError) as refused_form:
        ask(queue, Action="DeleteMessageBatch", **{"DeleteMessageBatchRequestEntry.²": "x"})
    assert refused_form.value.code == 400
    listed = ask(broker.url, Action="ListQueues", QueueNamePrefix=queue.rsplit("/", 1)[1])
    assert [found.text for found in listed.iterfind(".//s:QueueUrl", space)] == [queue]


def test_signatures_are_verified_when_keys_are_configured(
    fresh_broker: Callable[..., BrokerProcess], tmp_path: Any
) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = AKID\naws_secret_access_key = s3cret\n")
    credentials.chmod(0o600)
    broker = fresh_broker(arguments=("--sqs-credentials", str(credentials)))
    connect(broker, "AKID", "s3cret").create_queue(QueueName="signed")
    for key, secret in (("AKID", "wrong"), ("NOBODY", "s3cret")):
        refused("SignatureDoesNotMatch", connect(broker, key, secret).create_queue, QueueName="other")
    assert len(connect(broker, "AKID", "s3cret").list_queues()["QueueUrls"]) == 1


# -- one log, two protocols (Q6) -----------------------------------------------------------------------------------------


def test_sqs_to_kafka_and_back(sqs: Sqs, broker: BrokerProcess, name: str, queue: str) -> None:
    sqs.send_message(
        QueueUrl=queue, MessageBody="from sqs", MessageAttributes={"a": {"DataType": "String", "StringValue": "1"}}
    )  # fmt: skip
    consume = [
        "kcat",
        "-C",
        "-b",
        broker.bootstrap,
        "-t",
        name,
        "-o",
        "beginning",
        "-e",
        "-q",
        "-f",
        "%s|%h\n",
    ]
    assert (
        subprocess.run(consume, capture_output=True, text=True, check=True, timeout=120).stdout
        == "from sqs|a=1\n"
    )
    produce = ["kcat", "-P", "-b", broker.bootstrap, "-t", name, "-H", "a=2"]
    subprocess.run(produce, input="from kafka", text=True, check=True, timeout=120)
    messages: list[dict[str, Any]] = []
    while len(messages) < 2:
        messages += receive(sqs, queue)
    assert [(m["Body"], m["MessageAttributes"]["a"]["StringValue"]) for m in messages] == [
        ("from sqs", "1"),
        ("from kafka", "2"),
    ]
    for message in messages:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    replayed = subprocess.run(consume, capture_output=True, text=True, check=True, timeout=120).stdout
    assert replayed == "from sqs|a=1\nfrom kafka|a=2\n", "deleting in SQS leaves Kafka's replay alone"


def test_a_kafka_header_delays(sqs: Sqs, broker: BrokerProcess, name: str, queue: str) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
    began = time.monotonic()
    producer.produce(name, b"later", headers={"headrace-delay-ms": "1200"})
    producer.flush()
    assert receive(sqs, queue, wait=0) == []
    assert [m["Body"] for m in receive(sqs, queue)] == ["later"]
    assert time.monotonic() - began >= 1.2
