"""Command: messages out of a file that an export has written: text as it is, {"base64": …} as bytes, anything else as JSON."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.cli.sending import OutgoingLine


def imported_messages(path: str, *, keep_partitions: bool, keep_times: bool) -> Iterator[OutgoingLine]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError:
            found = None
        if not isinstance(found, dict) or "value" not in found:
            raise Failure(
                Exit.USAGE,
                f"line {number} is not a message: a JSON object with a value",
                "headrace topic export writes such files; lines of anything go in with: headrace topic produce --file",
            )
        more: dict[str, Any] = {}
        if headers := _headers(found.get("headers") or {}, number):
            more["headers"] = headers
        if keep_partitions and isinstance(found.get("partition"), int):
            more["partition"] = found["partition"]
        if keep_times and isinstance(found.get("timestamp_ms"), int):
            more["timestamp"] = found["timestamp_ms"]
        key, value = _bytes(found.get("key"), number), _bytes(found["value"], number)
        yield OutgoingLine(key, value, len(line), more)


def _headers(shown: Any, number: int) -> list[tuple[str, bytes | None]]:
    if not isinstance(shown, dict):
        raise Failure(Exit.USAGE, f"line {number}: headers is not an object")
    return [
        (name, _bytes(value, number))
        for name, held in shown.items()
        for value in (held if isinstance(held, list) else [held])
    ]


def _bytes(shown: Any, number: int) -> bytes | None:
    if shown is None:
        return None
    if isinstance(shown, str):
        return shown.encode()
    if isinstance(shown, dict) and set(shown) == {"base64"}:
        try:
            return base64.b64decode(shown["base64"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise Failure(Exit.USAGE, f"line {number}: not base64") from None
    return msgspec.json.encode(shown)


def _lines(path: str) -> Iterator[bytes]:
    if path == "-":
        yield from sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield from file
