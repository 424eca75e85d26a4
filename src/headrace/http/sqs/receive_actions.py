"""Door: ReceiveMessage, DeleteMessage, ChangeMessageVisibility and their batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from headrace.broker.queueing import names
from headrace.broker.queueing.local.delayed import number
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.http.receiving import receive_allowed
from headrace.http.sqs.call import Entry, SqsCall
from headrace.http.sqs.checksums import md5_of, md5_of_attributes
from headrace.http.sqs.message_form import body_of, from_headers
from headrace.http.sqs.send_actions import failed_entry, sequence_number
from headrace.queues.commands import Handle, Source
from headrace.queues.receipt import QueueReceipt, decode_receipt, encode_receipt
from headrace.records.build import Record

MAX_VISIBILITY_S = 43_200
_NOTHING: list[str] = []
SYSTEM_ATTRIBUTES = (
    "SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "SequenceNumber",
    "MessageDeduplicationId", "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn",
)  # fmt: skip


async def receive_message(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    count, visibility_ms, wait, wanted, named = 1, None, None, _NOTHING, _NOTHING
    if len(call.parameters) > 1:
        call.text("ReceiveRequestAttemptId", None)  # a retry gets the next batch: nothing is handed out twice
        count = call.number("MaxNumberOfMessages", 1, 10 if call.settings.strict else 1_000, 1)
        visibility = call.number("VisibilityTimeout", 0, MAX_VISIBILITY_S, None)
        visibility_ms = None if visibility is None else visibility * 1000
        wait = call.number("WaitTimeSeconds", 0, 20, None)
        wanted, named = _wanted_attributes(call)
    if wait is None:
        wait = int(spec.attributes.get("ReceiveMessageWaitTimeSeconds", "0"))
    deliveries = await receive_allowed(
        call.queues, spec, call.request.access, count, visibility_ms=visibility_ms, wait_ms=wait * 1000
    )
    messages = [_message(call, spec, delivery, wanted, named) for delivery in deliveries]
    return {"Messages": messages} if messages else {}


def _wanted_attributes(call: SqsCall) -> tuple[list[str], list[str]]:
    """Names of system attributes and of message attributes."""
    wanted, older = call.texts("MessageSystemAttributeNames", []), call.texts("AttributeNames", [])
    wanted = [*wanted, *older] if older else wanted
    for name in wanted:
        if name != "All" and name not in SYSTEM_ATTRIBUTES:
            raise HeadraceError(ErrorKind.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
    return wanted, call.texts("MessageAttributeNames", [])


def _message(
    call: SqsCall, spec: QueueSpec, delivery: DeliveredMessage, wanted: list[str], named: list[str]
) -> dict[str, object]:
    source, record, handle, _, message_id = delivery
    body, raw = body_of(record)
    message: dict[str, object] = {
        "MessageId": message_id,
        "ReceiptHandle": encode_receipt(
            QueueReceipt(source.topic, source.partition, handle), spec.id, call.settings.receipt_key
        ),
        "MD5OfBody": md5_of(raw),
        "Body": body,
    }
    if wanted:
        system = {name: value for name, value in _system(call, delivery) if "All" in wanted or name in wanted}
        if system:
            message["Attributes"] = system
    if named:
        attributes = {name: value for name, value in from_headers(record).items() if _is_named(name, named)}
        if attributes:
            message["MessageAttributes"] = attributes
            message["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    return message


def _is_named(name: str, named: list[str]) -> bool:
    return any(
        pattern in ("All", ".*")
        or pattern == name
        or (pattern.endswith(".*") and name.startswith(pattern[:-2]))
        for pattern in named
    )


def _system(call: SqsCall, delivery: DeliveredMessage) -> list[tuple[str, str]]:
    record = delivery.record
    found = [
        ("SenderId", call.settings.account),
        ("SentTimestamp", str(record.timestamp)),
        ("ApproximateReceiveCount", str(delivery.handle.delivery + _deliveries_before(record))),
        ("ApproximateFirstReceiveTimestamp", str(delivery.first_received_ms)),
    ]
    group = names.header(record.headers, names.GROUP)
    dedup_id = names.header(record.headers, names.DEDUP_ID)
    if group is not None:
        found.append(("MessageGroupId", group.decode(errors="replace")))
    if dedup_id is not None:
        found.append(("MessageDeduplicationId", dedup_id.decode(errors="replace")))
        found.append(("SequenceNumber", sequence_number(delivery.source.partition, record.offset)))
    trace = names.header(record.headers, names.TRACE)
    if trace is not None:
        found.append(("AWSTraceHeader", trace.decode(errors="replace")))
    dead = names.header(record.headers, names.DEAD_SOURCE)
    if dead is not None:
        found.append(("DeadLetterQueueSourceArn", call.arn(dead.decode(errors="replace"))))
    return found


def _deliveries_before(record: Record) -> int:
    """A dead letter's count goes on."""
    if not record.headers:
        return 0
    return max(0, number(names.header(record.headers, names.DEAD_DELIVERIES)) or 0)


# -- what a receipt may do ---------------------------------------------------------------------------------------------


def _receipt(call: SqsCall, spec: QueueSpec) -> tuple[Source, QueueReceipt]:
    text = call.parameters.get("ReceiptHandle")
    if type(text) is not str:
        text = call.text("ReceiptHandle")
    receipt = _checked_receipt(call, spec, text)
    return Source(spec.name, receipt.topic, receipt.partition), receipt


def _checked_receipt(call: SqsCall, spec: QueueSpec, text: str) -> QueueReceipt:
    receipt = decode_receipt(text, spec.id, call.settings.receipt_key)
    if isinstance(receipt, Rejected):
        raise HeadraceError(
            receipt.kind, f'The input receipt handle "{text[:100]}" is not a valid receipt handle.'
        )
    return receipt


async def delete_message(call: SqsCall) -> dict[str, object]:
    """AWS answers a second delete of the same delivery with success, and so do we; a stale one deletes nothing (R56)."""
    spec = call.queue()
    text = call.parameters.get("ReceiptHandle")
    if type(text) is not str:
        text = call.text("ReceiptHandle")
    topic, partition, handle = _checked_receipt(call, spec, text)
    (refusal,) = await call.queues.ack(Source(spec.name, topic, partition), (handle,))
    if refusal is not None and spec.name.endswith(".fifo"):
        raise _expired(call.text("ReceiptHandle"))
    return {}


def _expired(text: str) -> HeadraceError:
    return HeadraceError(
        ErrorKind.INVALID_PARAMETER,
        f"Value {text} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
    )


T = TypeVar("T")


class _Together:
    """Entries of a batch whose messages are in one partition."""

    __slots__ = ("entries", "handles")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.handles: list[Handle] = []


async def delete_message_batch(call: SqsCall) -> dict[str, object]:
    """Those of one partition are one command, so a batch of ten waits for one commit and not for ten."""
    spec = call.queue()
    problems: dict[str, HeadraceError] = {}
    together: dict[tuple[str, int], _Together] = {}
    entries = call.entries("DeleteMessageBatchRequestEntry")
    for entry in entries:
        text = entry.get("ReceiptHandle")
        try:
            if not isinstance(text, str):
                text = call.with_parameters(entry).text("ReceiptHandle")  # says what is wrong with it
            topic, partition, handle = _checked_receipt(call, spec, text)
        except HeadraceError as problem:
            problems[entry["Id"]] = problem
            continue
        asked = together.get((topic, partition))
        if asked is None:
            asked = together[topic, partition] = _Together()
        asked.entries.append(entry)
        asked.handles.append(handle)
    answers = await _each(
        [call.queues.ack(Source(spec.name, *place), asked.handles) for place, asked in together.items()]
    )
    for asked, answer in zip(together.values(), answers, strict=True):
        if isinstance(answer, HeadraceError):
            problems |= {entry["Id"]: answer for entry in asked.entries}
        elif isinstance(answer, BaseException):
            raise answer
        elif spec.name.endswith(".fifo"):
            for entry, refusal in zip(asked.entries, answer, strict=True):
                if refusal is not None:
                    problems[entry["Id"]] = _expired(entry["ReceiptHandle"])
    return _answered(entries, problems)


async def _each(asked: list[Awaitable[T]]) -> list[T | BaseException]:
    """Answers or exceptions. Mostly it is one partition, which needs no task of its own."""
    if len(asked) != 1:
        return await asyncio.gather(*asked, return_exceptions=True)
    try:
        return [await asked[0]]
    except HeadraceError as problem:
        return [problem]


async def change_message_visibility(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    call.text("ReceiptHandle")
    seconds = call.number("VisibilityTimeout", 0, MAX_VISIBILITY_S)
    source, receipt = _receipt(call, spec)
    (refusal,) = await call.queues.extend(source, [receipt.handle], seconds * 1000, stale_may_prolong=True)
    if refusal is not None:
        if refusal.kind in (ErrorKind.RECEIPT_HANDLE_IS_INVALID, ErrorKind.MESSAGE_NOT_INFLIGHT):
            raise HeadraceError(
                ErrorKind.MESSAGE_NOT_INFLIGHT,
                f"Value {call.text('ReceiptHandle')} for parameter ReceiptHandle is invalid. "
                "Reason: Message does not exist or is not available for visibility timeout change.",
            )
        raise HeadraceError(refusal.kind, refusal.detail)
    return {}


async def change_message_visibility_batch(call: SqsCall) -> dict[str, object]:
    call.queue()
    entries = call.entries("ChangeMessageVisibilityBatchRequestEntry")
    problems: dict[str, HeadraceError] = {}

    async def attempt(entry: Entry) -> None:
        try:
            await change_message_visibility(
                call.with_parameters({**entry, "QueueUrl": call.parameters["QueueUrl"]})
            )
        except HeadraceError as problem:
            problems[entry["Id"]] = problem

    await asyncio.gather(*map(attempt, entries))
    return _answered(entries, problems)


def _answered(entries: list[Entry], problems: dict[str, HeadraceError]) -> dict[str, object]:
    ids = [entry["Id"] for entry in entries]
    answer: dict[str, object] = {"Successful": [{"Id": one} for one in ids if one not in problems]}
    if problems:
        answer["Failed"] = [failed_entry(one, problems[one]) for one in ids if one in problems]
    return answer
