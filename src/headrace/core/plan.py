"""Kernel: the one currency between a Machine (decides) and a Driver (does).

A Machine's `decide(command, now_ms)` changes nothing and returns a Plan. The Driver applies the facts, journals
the durable ones, and lets replies and effects out only when every fact planned so far is committed: the reply
gate. So a crash at any point leaves either a journaled fact or a client that was never answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from headrace.core.errors import ErrorKind


class Fact(Protocol):
    """Something that became true. `durable` facts are journaled; the others die with the process."""

    durable: ClassVar[bool]


class Reply(NamedTuple):
    """`waiter` is an opaque id made by the Driver; a Machine may keep it in state and answer later."""

    waiter: int
    value: Any


class Plan(NamedTuple):
    facts: Sequence[Fact] = ()
    replies: Sequence[Reply] = ()
    effects: Sequence[Any] = ()


class Rejected(NamedTuple):
    """A refusal is a value, not an exception: `kind` says what a client is told, `detail` says it to a person."""

    kind: ErrorKind
    detail: str = ""


class JournalRecord(NamedTuple):
    """A durable fact as a keyed record; value None is a tombstone, so that compaction can forget the key."""

    key: bytes
    value: bytes | None


class Machine(Protocol):
    """A shard of state that lives in one internal-topic partition: groups, transactions, queues, schedules."""

    def decide(self, command: Any, now_ms: int) -> Plan: ...

    def apply(self, fact: Any, now_ms: int) -> None:
        """The only mutator. Called once per fact: live right after decide, and again at reload."""
        ...

    def encode(self, fact: Any) -> Sequence[JournalRecord]:
        """A durable fact as keyed records (usually one)."""
        ...

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        """Decode a journaled record and apply it. Unknown record kinds are skipped, never fatal."""
        ...

    def loaded(self, now_ms: int) -> Plan:
        """Called once after replay: restart timers in full from now_ms (R58), resume what was under way (R49)."""
        ...

    def next_deadline(self) -> int | None:
        """When `expire` should next be called, on the monotonic clock; None when nothing is pending."""
        ...

    def expire(self, now_ms: int) -> Plan: ...
