"""Every shape of SQS's service model, as botocore carries it: required members, types, enumerations, errors, outputs.

The cases are made from the model, so a new member or error in a later botocore fails here until somebody has looked at it;
what differs from AWS on purpose is in docs/sqs.md, and the tables below point there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from sqs_model import DOCS, GOOD, LEGACY, MODEL, NEVER, STATUS, flat

from headrace.core.errors import ErrorKind
from headrace.http.sqs.attributes import COMPUTED, SETTABLE
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

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


Place = tuple[str | int, ...]
SAMPLE: dict[str, Any] = {
    "String": "x", "QueueAttributeName": "VisibilityTimeout", "MessageSystemAttributeName": "SenderId", "MessageAttributeName": "a",
    "TagKey": "a", "TagValue": "b", "Binary": "AA==", "MessageSystemAttributeNameForSends": "AWSTraceHeader", "Token": "x",
}  # fmt: skip
KEYS = {"QueueAttributeMap": "VisibilityTimeout", "MessageBodySystemAttributeMap": "AWSTraceHeader"}


def filled(shape: Any, name: str = "") -> Any:
    """A value of the shape with every member that it may have."""
    if name in ("VisibilityTimeout", "QueueUrl", "SourceArn") or (name in GOOD and shape.type_name != "list"):
        return GOOD[name]
    if shape.type_name == "structure":
        return {inner: filled(member, inner) for inner, member in shape.members.items()}
    if shape.type_name == "list":
        return [filled(shape.member)]
    if shape.type_name == "map":
        return {KEYS.get(shape.name, "a"): filled(shape.value)}
    return 1 if shape.type_name in ("integer", "long") else SAMPLE[shape.name]


def places(shape: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every part of a request that has parts."""
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield (*at, name), member
            yield from places(member, (*at, name))
    elif shape.type_name == "list":
        yield (*at, 0), shape.member
        yield from places(shape.member, (*at, 0))
    elif shape.type_name == "map":
        key = KEYS.get(shape.name, "a")
        yield (*at, key), shape.value
        yield from places(shape.value, (*at, key))


def changed(request: Any, place: Place, value: Any) -> Any:
    """The request with another value at the place; without it when that is Ellipsis."""
    request = json.loads(json.dumps(request))
    inner = request
    for step in place[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return request


NOT_LOOKED_AT = {"QueueOwnerAWSAccountId"}
"""docs/sqs.md: there is one account."""


@pytest.mark.parametrize("action", MODEL.operation_names)
def test_every_part_of_every_request_has_its_type(server: BrokerProcess, action: str) -> None:
    """However deep it lies: entries of batches, attributes of messages, elements of lists, values of maps. Nothing is a 500, and
    nothing that is wrong is taken."""
    shape = MODEL.operation_model(action).input_shape
    request = {**filled(shape), **required(action)}
    if "Entries" in request:
        request["Entries"] = filled(shape.members["Entries"])
        request["Entries"][0]["Id"] = "a"
    for place, member in places(shape):
        if place[0] in NOT_LOOKED_AT:
            continue
        got = ask(server, action, **changed(request, place, WRONG[member.type_name]))
        failed = got[1].get("Failed")
        if got[0] == 200 and place[0] == "Entries" and failed:
            assert failed[0]["SenderFault"] is True and failed[0]["Code"], (place, got)
        else:
            assert is_refused(got), (place, got)


@pytest.mark.parametrize("action", ["SendMessage", "SendMessageBatch"])
@pytest.mark.parametrize("kind", ["MessageAttributes", "MessageSystemAttributes"])
def test_required_members_of_attributes(server: BrokerProcess, action: str, kind: str) -> None:
    """`DataType`, the one required member that lies deeper than an entry."""
    for lacking in ({"StringValue": "x"}, {"DataType": "String"}, {}):
        attributes = {KEYS["MessageBodySystemAttributeMap"]: lacking}
        entry: dict[str, Any] = {"MessageBody": "x", kind: attributes}
        entry = {"Entries": [{"Id": "a", **entry}]} if action.endswith("Batch") else entry
        got = ask(server, action, QueueUrl="model", **entry)
        assert is_refused(got) or got[1]["Failed"][0]["SenderFault"] is True, (lacking, got)


def ask_query(broker: BrokerProcess, action: str, fields: dict[str, str]) -> tuple[int, str]:
    """(status, code of the error) by the Query protocol."""
    form = urlencode({"Action": action, "Version": "2012-11-05", **fields}).encode()
    request = Request(broker.url, form, {"Content-Type": "application/x-www-form-urlencoded"})
    try:
        with urlopen(request) as response:
            return response.status, ""
    except HTTPError as refused:
        found = re.search("<Code>(.*?)</Code>", refused.read().decode())
        return refused.code, found[1] if found else ""


@pytest.mark.parametrize("action", MODEL.operation_names)
def test_the_query_protocol_has_the_same_constraints(server: BrokerProcess, action: str) -> None:
    """Required members and numbers: everything else is text there."""
    shape = MODEL.operation_model(action).input_shape
    request = required(action)
    if "Entries" in request:
        request["Entries"] = [
            {name: GOOD["Entries"][0][name] for name in shape.members["Entries"].member.required_members}
        ]
    for name in shape.required_members:
        status, code = ask_query(server, action, flat(action, changed(request, (name,), ...)))
        wanted = "EmptyBatchRequest" if name == "Entries" else "MissingParameter"
        assert status == 400 and wanted in code, (name, status, code)
    for name, member in shape.members.items():
        if member.type_name in ("integer", "long"):
            fields = flat(action, {**request, name: "x"})
            assert ask_query(server, action, fields) == (400, "InvalidParameterValue"), name


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
