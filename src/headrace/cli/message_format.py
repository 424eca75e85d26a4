"""Command: one message as a line: `-f '%t %p %o %k %v\\n'`, or a JSON row.

%t topic · %p partition · %o offset · %k key · %v value · %h headers · %d time (RFC 3339) · %T time (ms since 1970) ·
%S size of the value · %% a percent sign; \\n \\t \\r \\\\ as usual
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from headrace.cli.output import Row, printable
from headrace.core.moments import rfc3339
from headrace.records.shown import shown_bytes, shown_headers

Part = Callable[[Any], bytes]

DEFAULT_FORMAT = "%v\\n"
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


class MessageRow(Row):
    """As REST shows records: a text, or {"base64": …} for bytes that are not text."""

    SCHEMA: ClassVar[str] = "headrace.message/v2"
    NAME: ClassVar[str] = "value"
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Any
    value: Any
    headers: dict[str, Any]


def message_row(message: Any) -> MessageRow:
    kind, timestamp_ms = message.timestamp()
    return MessageRow(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms if kind else None,
        key=shown_bytes(message.key()),
        value=shown_bytes(message.value()),
        headers=shown_headers(message.headers() or ()),
    )


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
    return (rfc3339(timestamp_ms) or "") if kind else ""


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
