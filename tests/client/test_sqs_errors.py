"""Each error that SQS's service model gives an action, provoked through the door in JSON and in forms, or never sent and explained.

The pairs are those of botocore's model: a new one in a later botocore fails here until somebody has looked at it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from sqs_model import DOCS, GOOD, LEGACY, MODEL, NEVER, STATUS, flat

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

QUEUE, FULL, GONE = "errors", "errors-full", "errors-gone"
ARN = "arn:aws:sqs:us-east-1:000000000000"
NO_TASK = b64encode(json.dumps({"taskId": "none", "sourceArn": f"{ARN}:{QUEUE}"}).encode()).decode()
ANYWHERE = {"RequestThrottled", "InvalidAddress", "InvalidSecurity", "UnsupportedOperation"}
"""Named for every action."""
ELSEWHERE = {"RequestThrottled"}
"""tests/client/test_user_quotas.py: a quota answers whatever was asked."""


def entries(action: str, *ids: str, **more: Any) -> list[dict[str, Any]]:
    kept = {"SendMessageBatch": ["MessageBody"], "DeleteMessageBatch": ["ReceiptHandle"]}
    fields = kept.get(action, ["ReceiptHandle", "VisibilityTimeout"])
    return [{"Id": each, **{name: GOOD["Entries"][0][name] for name in fields}, **more} for each in ids]


def wrong(action: str, error: str) -> dict[str, Any] | None:
    """A request that must be refused with the error."""
    needed = {name: GOOD[name] for name in MODEL.operation_model(action).input_shape.required_members}
    needed |= {"QueueUrl": QUEUE} if "QueueUrl" in needed else {}
    batch = action.endswith("Batch")
    changes: dict[str, dict[str, Any]] = {
        "QueueDoesNotExist": {"QueueName" if action == "GetQueueUrl" else "QueueUrl": "errors-none"},
        "ReceiptHandleIsInvalid": {"ReceiptHandle": "nonsense"},
        "InvalidAttributeName": {"AttributeNames": ["Colour"]} if action.startswith("Get") else {"Attributes": {"Colour": "1"}},
        "InvalidAttributeValue": {"Attributes": {"VisibilityTimeout": "-1"}},
        "InvalidMessageContents": {"MessageBody": "\x01"},
        "ResourceNotFoundException": {"TaskHandle": NO_TASK} if "TaskHandle" in needed else {"SourceArn": f"{ARN}:errors-none"},
        "QueueNameExists": {"QueueName": QUEUE, "Attributes": {"VisibilityTimeout": "77"}},
        "QueueDeletedRecently": {"QueueName": GONE},
        "PurgeQueueInProgress": {},
        "EmptyBatchRequest": {"Entries": []},
        "TooManyEntriesInBatchRequest": {"Entries": entries(action, *(f"a{n}" for n in range(11)))},
        "BatchEntryIdsNotDistinct": {"Entries": entries(action, "a", "a")},
        "InvalidBatchEntryId": {"Entries": entries(action, "a b")},
        "BatchRequestTooLong": {"Entries": entries(action, "a", "b", MessageBody="x" * 600_000)},
        "OverLimit": {"QueueUrl": FULL} if action == "ReceiveMessage" else {"Actions": ["SendMessage"] * 8},
    }  # fmt: skip
    if batch and "Entries" in needed:
        needed["Entries"] = entries(action, "a")
    return None if error not in changes else {**needed, **changes[error]}


NOT_BY = {
    ("SetQueueAttributes", "OverLimit"),
    ("ChangeMessageVisibility", "MessageNotInflight"),
}
"""One needs a message: test_sqs_letter.py::test_f39. The other docs/sqs.md explains."""
PAIRS = [
    (action, shape.name)
    for action in MODEL.operation_names
    for shape in MODEL.operation_model(action).error_shapes
    if shape.name not in NEVER | ANYWHERE and (action, shape.name) not in NOT_BY
]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(arguments=("--sqs-strict",)) as broker:
        for name in (QUEUE, GONE):
            assert asked(broker, "CreateQueue", {"QueueName": name})[0] == 200
        assert asked(broker, "DeleteQueue", {"QueueUrl": GONE})[0] == 200
        full = json.dumps({"name": FULL, "max_in_flight": 1}).encode()
        urlopen(Request(f"{broker.url}/api/v1/queues", full, {"Content-Type": "application/json"})).close()
        for body in "ab":
            assert asked(broker, "SendMessage", {"QueueUrl": FULL, "MessageBody": body})[0] == 200
        held = asked(
            broker, "ReceiveMessage", {"QueueUrl": FULL, "VisibilityTimeout": 43_200, "WaitTimeSeconds": 20}
        )
        assert held[0] == 200
        assert asked(broker, "PurgeQueue", {"QueueUrl": QUEUE})[0] == 200
        yield broker


def asked(broker: BrokerProcess, action: str, request: dict[str, Any]) -> tuple[int, str, str]:
    """(status, type, legacy code), in JSON."""
    body, head = json.dumps(request).encode(), {"X-Amz-Target": f"AmazonSQS.{action}"}
    try:
        with urlopen(Request(broker.url, body, head)) as answer:
            return answer.status, "", ""
    except HTTPError as refused:
        kind = json.loads(refused.read())["__type"].removeprefix("com.amazonaws.sqs#")
        return refused.code, kind, refused.headers["x-amzn-query-error"].removesuffix(";Sender")


def asked_in_a_form(broker: BrokerProcess, action: str, request: dict[str, Any]) -> tuple[int, str]:
    """(status, code)"""
    names = {"AttributeNames": "AttributeName"}
    fields = flat(action, {names.get(name, name): value for name, value in request.items()})
    form = urlencode({"Action": action, "Version": "2012-11-05", **fields}).encode()
    try:
        with urlopen(
            Request(broker.url, form, {"Content-Type": "application/x-www-form-urlencoded"})
        ) as answer:
            return answer.status, ""
    except HTTPError as refused:
        found = re.search("<Code>(.*?)</Code>", refused.read().decode())
        return refused.code, found[1] if found else ""


@pytest.mark.parametrize("action", MODEL.operation_names)
def test_each_error_of_each_action(server: BrokerProcess, action: str) -> None:
    for error in [error for named, error in PAIRS if named == action]:
        request = wrong(action, error)
        assert request is not None, f"nobody knows how to provoke {error}"
        code, status = LEGACY.get(error, error), STATUS.get(error, 400)
        assert asked(server, action, request) == (status, error, code), (error, request)
        assert asked_in_a_form(server, action, request) == (status, code), error


def test_what_is_never_sent_is_explained() -> None:
    for error in (NEVER | ANYWHERE) - ELSEWHERE:
        assert f"`{error}`" in DOCS, error
    for action, error in NOT_BY - {("ChangeMessageVisibility", "MessageNotInflight")}:
        assert f"`{error}` of `{action}`" in DOCS
