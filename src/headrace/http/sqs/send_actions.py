"""Door: SendMessage and SendMessageBatch."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import NamedTuple

from headrace.broker.queueing import names
from headrace.broker.queueing.routing.peer_calls import Outgoing, Sent
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.sqs.call import SqsCall, invalid
from headrace.http.sqs.checksums import Attribute, md5_of, md5_of_attributes
from headrace.http.sqs.message_form import (
    attribute_bytes,
    check_attributes,
    check_body,
    find_bad_character,
    to_headers,
)
from headrace.records.build import Record

MAX_MESSAGE_BYTES = 1_048_576
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE = "AWSTraceHeader"
MAX_TRACE_CHARS = 1_024
_SPECIAL = frozenset(("DelaySeconds", "MessageDeduplicationId", "MessageGroupId"))


class OutgoingEntry(NamedTuple):
    record: Record
    group: str | None
    """Of a FIFO queue."""
    dedup_id: str | None
    size: int
    answer: dict[str, object]


Answered = tuple[bool, dict[str, object]]
"""Whether an entry was sent, and its row."""


async def send_message(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    outgoing = _prepare(call, spec, call.broker.runtime.clock.wall_ms())
    sent = await call.queues.send(spec, outgoing.record, outgoing.group, _dedup_bytes(outgoing))
    _note(call, spec, 1)
    return _row(spec, outgoing, sent)


async def send_message_batch(call: SqsCall) -> dict[str, object]:
    spec = call.queue()
    entries = call.entries("SendMessageBatchRequestEntry")
    is_fifo = spec.name.endswith(".fifo")
    if is_fifo and any(entry.get("MessageGroupId") is None for entry in entries):
        raise _no_group()
    rows: dict[str, Answered] = {}
    by_group: dict[str | None, list[tuple[str, OutgoingEntry]]] = {}
    total, wall_ms = 0, call.broker.runtime.clock.wall_ms()
    for entry in entries:
        try:
            outgoing = _prepare(call.with_parameters(entry), spec, wall_ms)
        except HeadraceError as problem:
            rows[entry["Id"]] = (False, failed_entry(entry["Id"], problem))
            continue
        total += outgoing.size
        by_group.setdefault(outgoing.group, []).append((entry["Id"], outgoing))
    if total > MAX_MESSAGE_BYTES:
        raise HeadraceError(
            ErrorKind.BATCH_TOO_LONG,
            f"Batch requests cannot be longer than {MAX_MESSAGE_BYTES} bytes. You have sent {total} bytes.",
        )
    if is_fifo:
        sendings = [_send_group(call, spec, group or "", letters) for group, letters in by_group.items()]
        for found in await asyncio.gather(*sendings):
            rows |= found
    elif by_group:
        rows |= await _send_all(call, spec, by_group[None])
    results = [rows[entry["Id"]] for entry in entries]
    answer: dict[str, object] = {"Successful": [row for ok, row in results if ok]}
    if failed := [row for ok, row in results if not ok]:
        answer["Failed"] = failed
    if len(failed) < len(results):
        _note(call, spec, len(results) - len(failed))
    return answer


async def _send_all(
    call: SqsCall, spec: QueueSpec, letters: list[tuple[str, OutgoingEntry]]
) -> dict[str, Answered]:
    """Those that need no order."""
    found: list[Sent | HeadraceError]
    try:
        found = await call.queues.send_all(spec, [outgoing.record for _, outgoing in letters])
    except HeadraceError as refused:
        found = [refused] * len(letters)
    return {
        entry_id: (
            (False, failed_entry(entry_id, one))
            if isinstance(one, HeadraceError)
            else (True, {"Id": entry_id, **outgoing.answer, "MessageId": one.message_id})
        )
        for (entry_id, outgoing), one in zip(letters, found, strict=True)
    }


async def _send_group(
    call: SqsCall, spec: QueueSpec, group: str, letters: list[tuple[str, OutgoingEntry]]
) -> dict[str, Answered]:
    """Those of one message group, in their order (R59)."""
    messages = tuple(Outgoing(outgoing.record, _dedup_bytes(outgoing)) for _, outgoing in letters)
    try:
        sent, problem = await call.queues.send_group(spec, group, messages)
        refusal = (
            HeadraceError(*problem) if problem is not None else HeadraceError(ErrorKind.UNKNOWN_SERVER_ERROR)
        )
    except HeadraceError as refused:
        sent, refusal = [], refused
    rows: dict[str, Answered] = {
        entry_id: (True, {"Id": entry_id, **_row(spec, outgoing, one)})
        for (entry_id, outgoing), one in zip(letters, sent, strict=False)
    }
    for entry_id, _ in letters[len(rows) :]:
        rows[entry_id] = (False, failed_entry(entry_id, refusal))
    return rows


def _note(call: SqsCall, spec: QueueSpec, messages: int) -> None:
    call.broker.writers.note(spec.topics[0], (call.request.agent, "SQS"), messages)


def failed_entry(entry_id: str, problem: HeadraceError) -> dict[str, object]:
    info = problem.kind.info
    return {
        "Id": entry_id,
        "SenderFault": info.http_status < 500,
        "Code": info.sqs_code,
        "Message": problem.detail,
    }


def _dedup_bytes(outgoing: OutgoingEntry) -> bytes:
    return b"" if outgoing.dedup_id is None else outgoing.dedup_id.encode()


def _row(spec: QueueSpec, outgoing: OutgoingEntry, sent: Sent) -> dict[str, object]:
    answer = {**outgoing.answer, "MessageId": sent.message_id}
    if spec.name.endswith(".fifo"):
        answer["SequenceNumber"] = sequence_number(sent.partition, sent.offset)
    return answer


def sequence_number(partition: int, offset: int) -> str:
    """Twenty digits that grow with the offset, as AWS's do."""
    return f"{10**19 + offset:020d}"


def _prepare(call: SqsCall, spec: QueueSpec, wall_ms: int) -> OutgoingEntry:
    given = call.parameters
    body = given.get("MessageBody")
    if type(body) is not str:
        body = call.text("MessageBody")
    if not body or find_bad_character(body):
        check_body(body)
    raw = body.encode()
    answer: dict[str, object] = {"MD5OfMessageBody": md5_of(raw)}
    size = len(raw)
    attributes: dict[str, Attribute] = {}
    if given.get("MessageAttributes") is not None:
        attributes = call.get("MessageAttributes", dict)
    if attributes:
        check_attributes(attributes)
        size += attribute_bytes(attributes)
        answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
    trace: str | None = None
    if "MessageSystemAttributes" in given or b"x-amzn-trace-id" in call.request.headers:
        trace = _trace_header(call, answer)
    limit = int(spec.attributes.get("MaximumMessageSize", MAX_MESSAGE_BYTES))
    if size > limit:
        raise invalid(
            f"One or more parameters are invalid. Reason: Message must be shorter than {limit} bytes."
        )
    is_fifo = spec.name.endswith(".fifo")
    special: dict[str, str] = {}
    dedup_id = group = None
    if is_fifo or not _SPECIAL.isdisjoint(given):
        special, dedup_id, group = _special(call, spec, raw)
    if trace is not None:
        special[names.TRACE] = trace
    record = Record(
        group.encode() if group is not None else None,
        raw,
        to_headers(attributes, special) if attributes or special else (),
        wall_ms,
    )
    return OutgoingEntry(record, group if is_fifo else None, dedup_id, size, answer)


def _trace_header(call: SqsCall, answer: dict[str, object]) -> str | None:
    """The one system attribute there is. It may come as an HTTP header too, as SDKs with X-Ray send it."""
    system = call.get("MessageSystemAttributes", dict, {})
    if not system:
        return call.trace if 0 < len(call.trace) <= MAX_TRACE_CHARS else None
    if set(system) - {_TRACE}:
        raise invalid("Only AWSTraceHeader may be given as a message system attribute.")
    check_attributes(system)
    if system[_TRACE]["DataType"] != "String":
        raise invalid("The message system attribute AWSTraceHeader must be a String.")
    answer["MD5OfMessageSystemAttributes"] = md5_of_attributes(system)
    text: str = system[_TRACE]["StringValue"]
    return text


def _no_group() -> HeadraceError:
    return HeadraceError(
        ErrorKind.MISSING_PARAMETER, "The request must contain the parameter MessageGroupId."
    )


def _special(call: SqsCall, spec: QueueSpec, body: bytes) -> tuple[dict[str, str], str | None, str | None]:
    """(our headers, deduplication id, group)."""
    special: dict[str, str] = {}
    is_fifo = spec.name.endswith(".fifo")
    group = call.text("MessageGroupId", None)
    if group is not None:
        if not _ID.fullmatch(group):
            raise invalid(
                "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length."
            )
        special[names.GROUP] = group
    delay = call.number("DelaySeconds", 0, 900 if call.settings.strict else 10**12, None)
    dedup_id = call.text("MessageDeduplicationId", None)
    if dedup_id is not None and not _ID.fullmatch(dedup_id):
        raise invalid(
            "MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
    if not is_fifo:
        if dedup_id is not None:
            raise invalid(
                "The request includes a parameter that is not valid for this queue type: MessageDeduplicationId."
            )
        if delay is not None:
            special[names.DELAY_MS] = str(delay * 1000)
        return special, None, group
    if group is None:
        raise _no_group()
    if delay:
        raise invalid(f"Value {delay} for parameter DelaySeconds is invalid. Reason: The request include parameter that is not "
                      "valid for this queue type.")  # fmt: skip
    if dedup_id is None:
        if spec.attributes.get("ContentBasedDeduplication") != "true":
            raise invalid("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
                          "explicitly")  # fmt: skip
        dedup_id = hashlib.sha256(body).hexdigest()
    special[names.DEDUP_ID] = dedup_id
    return special, dedup_id, group
