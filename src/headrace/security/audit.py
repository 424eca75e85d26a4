"""Machine: what there is to say about who came, what was refused and what was changed (A64), until it is written down.

Never in anybody's way: a note costs a lookup, repeats of the same by the same within a minute are one event with a count, the buffer is bounded, and
what does not fit is counted. Nothing secret is ever in it; client-made text is JSON, so it forges no lines (X28).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec

from headrace.core.ports import Clock

MOST_WAITING = 10_000
MOST_FOLDED = 10_000
FOLD_MS = 60_000
MOST_CHARS = 300

ACTING: ContextVar[str] = ContextVar("acting", default="")
"""The principal for whom something is done now; set by the doors before what changes security."""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """As it stands in `__audit`. No field ever holds a password, a key or a token."""

    event: str
    """login, login_failed, nameless, denied, would_deny, change, console."""
    principal: str = ""
    host: str = ""
    mechanism: str = ""
    """How a login was proven; scram, plain, basic, token, signature."""
    operation: str = ""
    resource: str = ""
    name: str = ""
    text: str = ""
    """What was changed; why a login failed; which rule denied it."""


class Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    at_ms: int
    broker: int
    event: AuditEvent
    count: int = 1
    """Of so many within a minute."""
    text: str = ""
    more: dict[str, Any] = {}
    """Further fields: what a change was about, before and after (W22)."""


class _Fold:
    __slots__ = ("count", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self.count = 0


class AuditTrail:
    def __init__(self, clock: Clock, broker_id: int) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._waiting: deque[Line] = deque()
        self._folds: OrderedDict[AuditEvent, _Fold] = OrderedDict()
        """In the order in which they began."""
        self.dropped = 0
        self.is_on = False
        """Off in mode open: nobody is asked who they are."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there is something to write down."""

    def note(
        self, event: AuditEvent, explain: Callable[[], str] | None = None, *, always: bool = False
    ) -> None:
        """`explain`: more about it, which is asked for only when it is written down; it does not tell repeats apart."""
        if not (self.is_on or always):
            return
        now_ms = self._clock.now_ms()
        fold = self._folds.get(event)
        if fold is not None and now_ms - fold.since_ms < FOLD_MS:
            fold.count += 1
            return
        if fold is not None:
            self._end(event)
        self._folds[event] = _Fold(now_ms)
        if len(self._folds) > MOST_FOLDED:
            self._end(next(iter(self._folds)))
        self._say(event, 1, "" if explain is None else explain()[:MOST_CHARS])

    def tell(self, event: AuditEvent, more: dict[str, Any]) -> None:
        """In every mode, and each by itself: two changes are never the same."""
        self._say(event, 1, "", more)

    def changed(self, text: str) -> None:
        """Something of security, in a mode other than open, or from it or to it."""
        self.note(AuditEvent(event="change", principal=ACTING.get(), text=text[:MOST_CHARS]), always=True)

    def did(self, principal: str, host: str, operation: str, resource: str, name: str, text: str) -> None:
        """Something else that counts for everybody was changed: a topic, a queue, a config."""
        self.note(
            AuditEvent(
                event="change", principal=principal, host=host, operation=operation, resource=resource,
                name=name[:MOST_CHARS], text=text[:MOST_CHARS],
            )
        )  # fmt: skip

    def logged_in(self, principal: str, host: str, mechanism: str) -> None:
        if self.is_on:
            self.note(AuditEvent(event="login", principal=principal, host=host, mechanism=mechanism))

    def login_failed(self, name: str, host: str, reason: str) -> None:
        self.note(
            AuditEvent(event="login_failed", name=name[:MOST_CHARS], host=host, text=reason[:MOST_CHARS])
        )

    def _end(self, event: AuditEvent) -> None:
        fold = self._folds.pop(event)
        if fold.count:
            self._say(event, fold.count, "")

    def _say(self, event: AuditEvent, count: int, text: str, more: dict[str, Any] | None = None) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self.dropped += count
            return
        self._waiting.append(
            Line(
                at_ms=self._clock.wall_ms(),
                broker=self._broker_id,
                event=event,
                count=count,
                text=text,
                more=more or {},
            )
        )
        self.wake()

    def fold(self) -> None:
        """Write down the counts of minutes that are over."""
        now_ms = self._clock.now_ms()
        while self._folds:
            event, fold = next(iter(self._folds.items()))
            if now_ms - fold.since_ms < FOLD_MS:
                return
            self._end(event)

    def __len__(self) -> int:
        return len(self._waiting)

    def peek(self, most: int) -> list[bytes]:
        """The oldest lines, as JSON; they stay until `forget`."""
        return [_json(line) for line in list(self._waiting)[:most]]

    def forget(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()


def _json(line: Line) -> bytes:
    shown = {"at_ms": line.at_ms, "broker": line.broker, **msgspec.to_builtins(line.event)}
    if line.count != 1:
        shown["count"] = line.count
    if line.text:
        shown["rule"] = line.text
    shown |= line.more
    return msgspec.json.encode(shown)
