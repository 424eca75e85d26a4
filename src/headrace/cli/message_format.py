"""Command: one message as a line: `-f '%t %p %o %k %v\\n'`, or a JSON row.

%t topic · %p partition · %o offset · %k key · %v value · %h headers · %d time (RFC 3339) · %T time (ms since 1970) ·
%S size of the value · %% a percent sign; \\n \\t \\r \\\\ as usual
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from headrace.cli.output import Row, printable

Part = Callable[[Any], bytes]

DEFAULT_FORMAT = "%v\\n"
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class HeaderInfo(msgspec.Struct):
    key: str
    value: str | None
    encoding: str


class MessageRow(Row):
    """`*_encoding` is utf-8, or base64 for bytes that are not text."""

    SCHEMA: ClassVar[str] = "headrace.message/v1"
    NAME: ClassVar[str] = "value"
    topic: str
    partition: int
    offset: int
    timestamp: str | None
    key: str | None
    key_encoding: str
    value: str | None
    value_encoding: str
    headers: list[HeaderInfo]


def message_row(message: Any) -> MessageRow:
    key, key_encoding = readable(message.key())
    value, value_encoding = readable(message.value())
    return MessageRow(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp=_rfc3339(message) or None,
        key=key,
        key_encoding=key_encoding,
        value=value,
        value_encoding=value_encoding,
        headers=[HeaderInfo(name, *readable(content)) for name, content in message.headers() or ()],
    )


def readable(raw: bytes | None) -> tuple[str | None, str]:
    if raw is None:
        return None, "utf-8"
    try:
        return raw.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode(), "base64"


def compile_format(text: str, clean: Callable[[bytes], bytes] = bytes) -> Part:
    """Read the format once; ValueError when it has something we do not know. `clean` is done to what others wrote, and
    not to the format itself: a line feed in a value is not the end of a line (F57)."""
    parts: list[bytes | Part] = []
    position = 0
    while position < len(text):
        char, following = text[position], text[position + 1 : position + 2]
        if char == "%":
            if following == "%":
                parts.append(b"%")
            elif following in _FIELDS:
                parts.append(_FIELDS[following])
            else:
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise ValueError(f'"%{following}" is not known in a format; there is {known} %%')
            position += 2
        elif char == "\\" and following in _ESCAPES:
            parts.append(_ESCAPES[following])
            position += 2
        else:
            parts.append(char.encode())
            position += 1

    def show(message: Any) -> bytes:
        return b"".join(part if isinstance(part, bytes) else clean(part(message)) for part in parts)

    return show


def for_terminal(raw: bytes) -> bytes:
    """X28: what somebody published can't take over the terminal of whoever looks at it. Pipes get the very bytes."""
    return printable(raw.decode(errors="backslashreplace")).encode()


def _rfc3339(message: Any) -> str:
    kind, timestamp_ms = message.timestamp()
    if not kind:
        return ""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b":" + (value or b"") for name, value in message.headers() or ())


_FIELDS: dict[str, Part] = {
    "t": lambda message: message.topic().encode(),
    "p": lambda message: b"%d" % message.partition(),
    "o": lambda message: b"%d" % message.offset(),
    "k": lambda message: message.key() or b"",
    "v": lambda message: message.value() or b"",
    "s": lambda message: message.value() or b"",
    "h": _headers,
    "d": lambda message: _rfc3339(message).encode(),
    "T": lambda message: b"%d" % message.timestamp()[1],
    "S": lambda message: b"%d" % len(message.value() or b""),
}
