"""Codec: what REST requests say: durations, numbers, records in JSON."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from headrace.broker.queueing import names
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.trace_context import TRACEPARENT, trace_context
from headrace.core.units import is_digits, parse_duration_ms
from headrace.http.messages import JSON, Request, Response
from headrace.http.rest.showing import shown
from headrace.records.build import Record
from headrace.records.filters.times import rfc3339_ms

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

HEADER_PREFIX = b"x-header-"
_TRACEPARENT = TRACEPARENT.encode()


def invalid(detail: str, hint: str = "") -> HeadraceError:
    return HeadraceError(ErrorKind.INVALID_REQUEST, detail, hint)


def answer(
    document: msgspec.Struct, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> Response:
    return Response(_encode(shown(document)), status, JSON, headers)


def _json(request: Request) -> object:
    try:
        return _decode(request.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise invalid(f"the body is not JSON: {problem}") from None


def json_object(request: Request) -> dict[str, Any]:
    body = _json(request) if request.body else {}
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object")
    return body


T = TypeVar("T", bound=msgspec.Struct)


def body_of(request: Request, kind: type[T]) -> T:
    """The body as the type that the OpenAPI document shows."""
    try:
        return msgspec.convert(json_object(request), kind)
    except msgspec.ValidationError as problem:
        text = str(problem)
        is_unknown = text.startswith("Object contains unknown field") and " - at " not in text
        hint = f"there are: {', '.join(sorted(kind.__struct_fields__))}" if is_unknown else ""
        raise invalid(text, hint) from None


def said(form: msgspec.Struct) -> dict[str, Any]:
    """The fields that somebody gave."""
    return {name: value for name in form.__struct_fields__ if (value := getattr(form, name)) is not UNSET}


def queue_of(request: Request, find: Callable[[str], QueueSpec | None]) -> QueueSpec:
    """Of a route with {queue}. Raises NOT_FOUND."""
    name = request.params["queue"]
    spec = find(name)
    if spec is None:
        raise Unknown(
            ErrorKind.NOT_FOUND, f'there is no queue called "{name}"', "GET /api/v1/queues lists them."
        )
    return spec


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not is_digits(text.removeprefix("-")) or len(text) > 19 or not low <= int(text) <= high:
        raise invalid(f"{name} is a number from {low} to {high}, not {text!r}")
    return int(text)


def duration_ms(text: str, name: str) -> int:
    """`20s` or `1500ms`; a bare number is milliseconds."""
    try:
        found = parse_duration_ms(text)
    except ValueError as problem:
        raise invalid(f"{name}: {problem}") from None
    if not 0 <= found <= 2**53:
        raise invalid(f"{name} must not be negative")
    return found


def query_duration_ms(request: Request, name: str, default: int, high: int) -> int:
    text = request.query.get(name)
    return default if text is None else min(duration_ms(text, name), high)


def time_ms(text: str, name: str) -> int:
    """An RFC 3339 time or milliseconds since 1970."""
    found = int(text) if is_digits(text) and len(text) < 17 else rfc3339_ms(text)
    if found is None:
        raise invalid(f"{name} is a time such as 2026-11-01T12:00:00Z, not {text!r}")
    return found


# -- records -------------------------------------------------------------------------------------------------------------


def _bytes(value: object, name: str) -> bytes | None:
    """Text as it is, JSON as JSON, and {"base64": "…"} for bytes."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (Error, ValueError, TypeError):
            raise invalid(f"{name}: not base64") from None
    return _encode(value)


def record_from_json(entry: object, wall_ms: int) -> Record:
    if not isinstance(entry, dict):
        raise invalid("a record is an object with value, and perhaps key, headers, delay, …")
    unknown = set(entry) - {
        "key",
        "value",
        "headers",
        "timestamp",
        "timestamp_ms",
        "delay",
        "deliver_at",
        "priority",
        "ttl",
        "group",
        "tag",
    }
    if unknown:
        raise invalid(f"a record has no {sorted(unknown)[0]!r}")
    given = entry.get("headers") or {}
    if not isinstance(given, dict):
        raise invalid("headers is an object of texts")
    headers: list[tuple[str, bytes | None]] = [
        (str(name), _bytes(one, name))
        for name, value in given.items()
        for one in (value if isinstance(value, list) else (value,))
    ]
    if entry.get("tag") is not None:
        headers.append(("tag", str(entry["tag"]).encode()))
    headers += special_headers(
        {name: entry.get(name) for name in ("delay", "deliver_at", "priority", "ttl", "group")}
    )
    # As it was shown: the number says it more exactly than any calendar.
    timestamp = entry.get("timestamp_ms", entry.get("timestamp"))
    if timestamp is not None and not isinstance(timestamp, int):
        timestamp = time_ms(str(timestamp), "timestamp")
    return Record(
        _bytes(entry.get("key"), "key"),
        _bytes(entry.get("value"), "value"),
        tuple(headers),
        wall_ms if timestamp is None else timestamp,
    )


def traced(request: Request, records: Sequence[Record]) -> list[Record]:
    """The trace that the request belongs to (W3C), in every record that names none of its own."""
    given = request.headers.get(_TRACEPARENT)
    context = None if given is None else trace_context(given, request.headers.get(b"tracestate"))
    if context is None:
        return list(records)
    return [
        record
        if names.header(record.headers, TRACEPARENT) is not None
        else record._replace(headers=(*record.headers, *context.headers()))
        for record in records
    ]


def special_headers(given: Mapping[str, object]) -> list[tuple[str, bytes | None]]:
    """What makes a message special to a queue, as headers."""
    headers: list[tuple[str, bytes | None]] = []
    if given.get("delay") is not None:
        headers.append((names.DELAY_MS, b"%d" % duration_ms(str(given["delay"]), "delay")))
    if given.get("deliver_at") is not None:
        headers.append((names.DELIVER_AT, b"%d" % time_ms(str(given["deliver_at"]), "deliver_at")))
    if given.get("ttl") is not None:
        headers.append((names.TTL_MS, b"%d" % duration_ms(str(given["ttl"]), "ttl")))
    if given.get("priority") is not None:
        text = str(given["priority"])
        if not is_digits(text) or not 0 <= int(text) <= 9:
            raise invalid("priority is a number from 0 to 9")
        headers.append((names.PRIORITY, text.encode()))
    if given.get("group") is not None:
        headers.append((names.GROUP, str(given["group"]).encode()))
    return headers


def record_from_request(request: Request, wall_ms: int) -> Record:
    """A raw body: the value is the body, everything else is in the query and in x-header-… headers."""
    query = request.query
    headers: list[tuple[str, bytes | None]] = [
        (name[len(HEADER_PREFIX) :].decode("latin-1"), value)
        for name, value in request.headers.items()
        if name.startswith(HEADER_PREFIX)
    ]
    if "tag" in query:
        headers.append(("tag", query["tag"].encode()))
    headers += special_headers(
        {name: query.get(name) for name in ("delay", "deliver_at", "priority", "ttl", "group")}
    )
    key = query.get("key")
    return Record(None if key is None else key.encode(), request.body, tuple(headers), wall_ms)
