"""Every shape of SQS's service model, as botocore carries it: required members, types, enumerations, errors, outputs.

The cases are made from the model, so a new member or error in a later botocore fails here until somebody has looked at it;
what differs from AWS on purpose is in docs/sqs.md, and the tables below point there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import botocore.session
import pytest

from headrace.core.errors import ErrorKind
from headrace.http.sqs.attributes import COMPUTED, SETTABLE
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

MODEL = botocore.session.get_session().get_service_model("sqs")
DOCS = (Path(__file__).parents[2] / "docs" / "sqs.md").read_text()
LEGACY = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{name: f"AWS.SimpleQueueService.{name}" for name in (
        "QueueDeletedRecently", "BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest",
        "InvalidBatchEntryId", "MessageNotInflight", "TooManyEntriesInBatchRequest", "UnsupportedOperation",
        "PurgeQueueInProgress",
    )},
}  # fmt: skip
"""What programs compare, where it is not the name of the shape."""
STATUS = {
    "PurgeQueueInProgress": 403,
    "OverLimit": 403,
    "ResourceNotFoundException": 404,
    "RequestThrottled": 429,
}
NEVER = {
    "InvalidAddress", "InvalidSecurity", "InvalidIdFormat", "KmsAccessDenied", "KmsDisabled",
    "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired", "KmsThrottled",
}  # fmt: skip
"""Errors that are never sent; docs/sqs.md says why."""
GOOD: dict[str, Any] = {
    "QueueUrl": "model", "QueueName": "model", "Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"],
    "TaskHandle": "x", "ReceiptHandle": "x", "VisibilityTimeout": 5, "Attributes": {"VisibilityTimeout": "30"},
    "SourceArn": "arn:aws:sqs:us-east-1:000000000000:model", "MessageBody": "x", "Tags": {"a": "b"}, "TagKeys": ["a"],
    "Entries": [{"Id": "a", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 5}],
}  # fmt: skip
WRONG = {"string": 5, "list": "x", "map": [1], "integer": "x", "structure": "x", "blob": 5}


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(arguments=("--sqs-strict",)) as broker:
        assert ask(broker, "CreateQueue", QueueName="model")[0] == 200
        yield broker


def ask(broker: BrokerProcess, action: str, **parameters: Any) -> tuple[int, dict[str, Any], str]:
    """(status, answer, the legacy code of an error)"""
    request = Request(broker.url, json.dumps(parameters).encode(), {"X-Amz-Target": f"AmazonSQS.{action}"})
    try:
        with urlopen(request) as response:
            return response.status, json.loads(response.read()), ""
    except HTTPError as refused:
        return refused.code, json.loads(refused.read()), refused.headers["x-amzn-query-error"]


def required(action: str) -> dict[str, Any]:
    return {name: GOOD[name] for name in MODEL.operation_model(action).input_shape.required_members}


def is_refused(got: tuple[int, dict[str, Any], str]) -> bool:
    """With an error that the model knows, or one of those that AWS sends beside it."""
    status, answer, code = got
    kind = str(answer.get("__type", "")).removeprefix("com.amazonaws.sqs#")
    known = {shape.name for shape in MODEL.error_shapes} | {"InvalidParameterValue", "MissingParameter"}
    return (
        status in (400, 403, 404) and kind in known and code.endswith(";Sender") and bool(answer["message"])
    )


@pytest.mark.parametrize("action", MODEL.operation_names)
def test_required_members(server: BrokerProcess, action: str) -> None:
    for name in MODEL.operation_model(action).input_shape.required_members:
        given = required(action)
        del given[name]
        got = ask(server, action, **given)
        wanted = "EmptyBatchRequest" if name == "Entries" else "MissingParameter"
        assert is_refused(got) and wanted in got[2], (name, got)


@pytest.mark.parametrize("action", MODEL.operation_names)
def test_wrong_types(server: BrokerProcess, action: str) -> None:
    """Also of what is optional: nothing is ignored, and nothing is a 500."""
    for name, shape in MODEL.operation_model(action).input_shape.members.items():
        if name == "QueueOwnerAWSAccountId":
            continue  # there is one account
        got = ask(server, action, **{**required(action), name: WRONG[shape.type_name]})
        assert is_refused(got), (name, got)


@pytest.mark.parametrize("action", [name for name in MODEL.operation_names if name.endswith("Batch")])
def test_required_members_of_entries(server: BrokerProcess, action: str) -> None:
    entry = MODEL.operation_model(action).input_shape.members["Entries"].member
    for name in entry.required_members:
        given = {known: GOOD["Entries"][0][known] for known in entry.required_members if known != name}
        status, answer, code = ask(server, action, QueueUrl="model", Entries=[given])
        if name == "Id":
            assert (status, code) == (400, "AWS.SimpleQueueService.InvalidBatchEntryId;Sender")
        else:
            assert (
                answer["Failed"][0]["Code"] == "MissingParameter"
                and answer["Failed"][0]["SenderFault"] is True
            )


def test_queue_attribute_names(server: BrokerProcess) -> None:
    names = set(MODEL.shape_for("QueueAttributeName").enum)
    assert names == {"All", *SETTABLE, *COMPUTED}
    for name in names:
        assert ask(server, "GetQueueAttributes", QueueUrl="model", AttributeNames=[name])[0] == 200, name
    for name in {"All", *COMPUTED, "Colour"}:
        got = ask(server, "SetQueueAttributes", QueueUrl="model", Attributes={name: "1"})
        assert got[2] == "InvalidAttributeName;Sender", name


def test_message_system_attribute_names(server: BrokerProcess) -> None:
    for parameter in ("MessageSystemAttributeNames", "AttributeNames"):
        for name in MODEL.shape_for("MessageSystemAttributeName").enum:
            assert ask(server, "ReceiveMessage", QueueUrl="model", **{parameter: [name]})[0] == 200, name
        assert is_refused(ask(server, "ReceiveMessage", QueueUrl="model", **{parameter: ["Colour"]}))
    assert MODEL.shape_for("MessageSystemAttributeNameForSends").enum == ["AWSTraceHeader"]
    value = {"DataType": "String", "StringValue": "x"}
    got = ask(
        server, "SendMessage", QueueUrl="model", MessageBody="x", MessageSystemAttributes={"SenderId": value}
    )
    assert is_refused(got)


@pytest.mark.parametrize("shape", [shape.name for shape in MODEL.error_shapes])
def test_each_error_is_ours_or_explained(shape: str) -> None:
    ours = [kind.info for kind in ErrorKind if kind.info.sqs_type == shape]
    if shape in NEVER:
        assert not ours and f"`{shape}`" in DOCS
        return
    wanted = (LEGACY.get(shape, shape), STATUS.get(shape, 400))
    assert wanted in {(info.sqs_code, info.http_status) for info in ours} or shape == "QueueDoesNotExist"
    assert {info.sqs_code for info in ours} == {wanted[0]}


def test_every_output_member_is_sent_and_no_other(server: BrokerProcess) -> None:
    seen: dict[str, set[str]] = {}

    def note(shape: Any, value: Any) -> None:
        if shape.type_name == "structure":
            assert value.keys() <= shape.members.keys(), (shape.name, value)
            seen.setdefault(shape.name, set()).update(value)
            for name, inner in value.items():
                note(shape.members[name], inner)
        elif shape.type_name in ("list", "map"):
            inner_shape = shape.member if shape.type_name == "list" else shape.value
            for inner in value if shape.type_name == "list" else value.values():
                note(inner_shape, inner)

    def call(action: str, **parameters: Any) -> Any:
        status, answer, code = ask(server, action, **parameters)
        assert status == 200, (action, answer, code)
        output = MODEL.operation_model(action).output_shape
        if output is None:
            assert answer == {}
        else:
            note(output, answer)
        return answer

    arn = "arn:aws:sqs:us-east-1:000000000000:out-dead.fifo"
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    call("CreateQueue", QueueName="out-dead.fifo", Attributes=fifo)
    for name in ("out.fifo", "out2.fifo"):
        attributes = {**fifo, "RedrivePolicy": policy, "VisibilityTimeout": "0"}
        call("CreateQueue", QueueName=name, Attributes=attributes, tags={"a": "b"})
    call("GetQueueUrl", QueueName="out.fifo")
    call("ListQueues", MaxResults=1)
    call("ListQueueTags", QueueUrl="out.fifo")
    call("GetQueueAttributes", QueueUrl="out.fifo", AttributeNames=["All"])
    call("ListDeadLetterSourceQueues", QueueUrl="out-dead.fifo", MaxResults=1)
    text = {"DataType": "String", "StringValue": "x"}
    both = {"t": text, "b": {"DataType": "Binary", "BinaryValue": "AA=="}}
    extra = {
        "MessageAttributes": both,
        "MessageSystemAttributes": {"AWSTraceHeader": text},
        "MessageGroupId": "g",
    }
    call("SendMessage", QueueUrl="out.fifo", MessageBody="1", **extra)
    entries = [{"Id": "a", "MessageBody": "2", **extra}, {"Id": "b", "MessageBody": "\x01", **extra}]
    call("SendMessageBatch", QueueUrl="out.fifo", Entries=entries)
    every = {
        "MessageSystemAttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
        "MaxNumberOfMessages": 10,
    }
    assert call("ReceiveMessage", QueueUrl="out.fifo", WaitTimeSeconds=20, **every)["Messages"]
    assert call("ReceiveMessage", QueueUrl="out.fifo") == {}
    (letter, *_) = call("ReceiveMessage", QueueUrl="out-dead.fifo", VisibilityTimeout=0, **every)["Messages"]
    assert set(letter["Attributes"]) == {*MODEL.shape_for("MessageSystemAttributeName").enum} - {"All"}
    handles = [{"Id": "a", "ReceiptHandle": letter["ReceiptHandle"]}, {"Id": "b", "ReceiptHandle": "x"}]
    call("DeleteMessageBatch", QueueUrl="out-dead.fifo", Entries=handles[1:])
    changes = [{**handle, "VisibilityTimeout": 0} for handle in handles]
    call("ChangeMessageVisibilityBatch", QueueUrl="out-dead.fifo", Entries=changes)
    call("ChangeMessageVisibilityBatch", QueueUrl="model", Entries=_held(server, "VisibilityTimeout"))
    call("DeleteMessageBatch", QueueUrl="model", Entries=_held(server))
    target = "arn:aws:sqs:us-east-1:000000000000:out2.fifo"
    started = call(
        "StartMessageMoveTask", SourceArn=arn, DestinationArn=target, MaxNumberOfMessagesPerSecond=1
    )
    call("ListMessageMoveTasks", SourceArn=arn)
    status, answer, _ = ask(server, "CancelMessageMoveTask", **started)
    if status == 200:
        note(MODEL.operation_model("CancelMessageMoveTask").output_shape, answer)
    for action in MODEL.operation_names:
        output = MODEL.operation_model(action).output_shape
        if output is not None and action != "CancelMessageMoveTask":
            assert seen[output.name] == set(output.members), action
    missing = {
        f"{name}.{member}" for name in seen for member in MODEL.shape_for(name).members.keys() - seen[name]
    }
    # docs/sqs.md: two that AWS does not use either, and one that only a failed task has.
    assert missing - {"ListMessageMoveTasksResultEntry.TaskHandle"} == {
        "MessageAttributeValue.StringListValues",
        "MessageAttributeValue.BinaryListValues",
        "ListMessageMoveTasksResultEntry.FailureReason",
    }


def _held(server: BrokerProcess, *more: str) -> list[dict[str, Any]]:
    """An entry for a message that is held, which succeeds."""
    assert ask(server, "SendMessage", QueueUrl="model", MessageBody="x")[0] == 200
    got = ask(server, "ReceiveMessage", QueueUrl="model", WaitTimeSeconds=20)[1]["Messages"][0]
    return [{"Id": "a", "ReceiptHandle": got["ReceiptHandle"], **dict.fromkeys(more, 5)}]
