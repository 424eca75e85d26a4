"""Codec: W3C trace context (https://www.w3.org/TR/trace-context/): which trace a message belongs to, under the same two names in the
headers of a record, in the attributes of an SQS message and in the headers of an HTTP request.

Invariant: what leaves this module is well-formed, ASCII and short. Whatever a client wrote instead is left out, and is no error: a
message is not refused because of what watches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_STATE_BYTES = 512
"""As much as everybody has to pass on; the state of more vendors than that is left out."""
MAX_STATE_MEMBERS = 32

# Version 00 is 55 characters; a later one may go on after another dash (3.2.2.5 of the recommendation).
_PARENT = re.compile(
    rb"(?:00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    rb"|(?!00|ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,128})?)"
)
_MEMBER = re.compile(
    rb"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_PARENT_BYTES = 55
_MAX_PARENT_BYTES = 55 + 1 + 128


class TraceContext(NamedTuple):
    """Checked."""

    parent: bytes
    state: bytes | None = None

    @property
    def trace_id(self) -> str:
        return self.parent[3:35].decode()

    @property
    def span_id(self) -> str:
        return self.parent[36:52].decode()

    @property
    def flags(self) -> int:
        return int(self.parent[53:_PARENT_BYTES], 16)

    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """As a record carries them."""
        found = ((TRACEPARENT, self.parent),)
        return found if self.state is None else (*found, (TRACESTATE, self.state))

    def http_headers(self) -> dict[str, str]:
        return {name: (value or b"").decode("ascii") for name, value in self.headers()}


def trace_context(parent: bytes | None, state: bytes | None = None) -> TraceContext | None:
    """What these two say; None when the first is not well-formed. A state that is not is left out alone."""
    if parent is None or len(parent) > _MAX_PARENT_BYTES or not _PARENT.fullmatch(parent):
        return None
    return TraceContext(parent, state if state and _is_state(state) else None)


def context_of(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Of a record. The first of each name counts."""
    parent = state = None
    for name, value in headers:
        if parent is None and name == TRACEPARENT:
            parent = value
        elif state is None and name == TRACESTATE:
            state = value
    return trace_context(parent, state)


def _is_state(state: bytes) -> bool:
    if len(state) > MAX_STATE_BYTES:
        return False
    members = [member.strip(b" \t") for member in state.split(b",")]
    return len(members) <= MAX_STATE_MEMBERS and all(
        not member or _MEMBER.fullmatch(member) for member in members
    )
