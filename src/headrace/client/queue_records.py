"""Codec: what is sent to a queue, in REST's words for it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict

from headrace.client.payload import encode_payload
from headrace.core.errors import ErrorKind, HeadraceError

MOST = 500
"""Records of one request."""
MOST_CHARACTERS = 1_000_000
"""Of their values, in base64: a request has 2 MiB at most."""


class SendOptions(TypedDict, total=False):
    delay: float | None
    """Seconds."""
    at: datetime | None
    group: str | None
    key: str | None
    tag: str | None
    headers: Mapping[str, str] | None


def queue_record(payload: object, options: SendOptions) -> dict[str, Any]:
    if unknown := options.keys() - SendOptions.__annotations__.keys():
        raise TypeError(
            f"there is no option {', '.join(sorted(unknown))}: {', '.join(SendOptions.__annotations__)}"
        )
    delay, at = options.get("delay"), options.get("at")
    if delay is not None and at is not None:
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER, "a message is sent after a delay or at a time, not both"
        )
    value = encode_payload(payload)
    record: dict[str, Any] = {"value": None if value is None else {"base64": b64encode(value).decode()}}
    for name in ("group", "key", "tag"):
        if options.get(name) is not None:
            record[name] = options.get(name)
    if headers := options.get("headers"):
        record["headers"] = dict(headers)
    if delay is not None:
        record["delay"] = f"{round(delay * 1000)}ms"
    if at is not None:
        aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        record["deliver_at"] = aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return record


def size_of(record: Mapping[str, Any]) -> int:
    """Of its value, in bytes."""
    text: str = (record["value"] or {"base64": ""})["base64"]
    return len(text) // 4 * 3 - text[-2:].count("=")


def in_requests(records: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    characters = 0
    for record in records:
        more = len((record["value"] or {"base64": ""})["base64"])
        if some and (len(some) == MOST or characters + more > MOST_CHARACTERS):
            yield some
            some, characters = [], 0
        some.append(record)
        characters += more
    if some:
        yield some
