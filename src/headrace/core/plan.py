"""Kernel: the one currency between a Machine (decides) and a Driver (does).

A Machine's `decide(command, now_ms)` changes nothing and returns a Plan. The Driver applies the facts, journals
the durable ones, and lets replies and effects out only when every fact planned so far is committed: the reply
gate. So a crash at any point leaves either a journaled fact or a client that was never answered.

A command says what it is answered with: `class Ack(Command[Verdicts])` is answered with Verdicts, or refused. Inside, a refusal
is a value (`Rejected`); whoever submitted the command gets it as a HeadraceError
([decision 0064](../../../docs/decisions/0064-a-command-says-what-it-is-answered-with.md)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.core.errors import ErrorKind, HeadraceError

R = TypeVar("R")
E_co = TypeVar("E_co", covariant=True)

NO_WAITER = -1
"""Nobody waits for the answer."""


class Fact(Protocol):
    """Something that became true. `durable` facts are journaled; the others die with the process."""

    durable: ClassVar[bool]


class Reply(NamedTuple):
    """`waiter` is an opaque id made by the Driver; a Machine may keep it in state and answer later."""

    waiter: int
    value: object


class Plan(NamedTuple, Generic[E_co]):
    """`E_co`: what a machine may want done, a union of its effects."""

    facts: Sequence[Fact] = ()
    replies: Sequence[Reply] = ()
    effects: Sequence[E_co] = ()


class Rejected(NamedTuple):
    """A refusal is a value, not an exception: `kind` says what a client is told, `detail` says it to a person."""

    kind: ErrorKind
    detail: str = ""


def accepted(decided: R | Rejected) -> R:
    """What was decided; a refusal leaves the machines as an exception."""
    if isinstance(decided, Rejected):
        raise HeadraceError(decided.kind, decided.detail)
    return decided


@dataclass(slots=True)
class Command(Generic[R]):
    """What a machine can be asked. It is answered with an `R`, or refused."""

    waiter: int = field(default=NO_WAITER, kw_only=True, compare=False)
    """Under which the driver finds who asked: the runtime writes it when the command is submitted."""

    def answer(self, value: R | Rejected) -> tuple[Reply, ...]:
        return () if self.waiter == NO_WAITER else (Reply(self.waiter, value),)


AnyCommand: TypeAlias = Command[Any]
"""Whatever it is answered with."""


@dataclass(slots=True)
class WallClock(Command[None]):
    """How late it is by the wall, now and then: what outlives a process is kept in wall time and durations are not (S24), so that
    a step of the wall clock does not go unnoticed."""

    wall_ms: int


@dataclass(frozen=True, slots=True)
class WallClockSet:
    durable: ClassVar[bool] = False
    wall_minus_now_ms: int


class JournalRecord(NamedTuple):
    """A durable fact as a keyed record; value None is a tombstone, so that compaction can forget the key."""

    key: bytes
    value: bytes | None


class Machine(Protocol[E_co]):
    """A shard of state that lives in one internal-topic partition: groups, transactions, queues, schedules."""

    def decide(self, command: AnyCommand, now_ms: int) -> Plan[E_co]: ...

    def apply(self, fact: Any, now_ms: int) -> None:
        """The only mutator. Called once per fact: live right after decide, and again at reload."""
        ...

    def encode(self, fact: Any) -> Sequence[JournalRecord]:
        """A durable fact as keyed records (usually one)."""
        ...

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        """Decode a journaled record and apply it. Unknown record kinds are skipped, never fatal."""
        ...

    def loaded(self, now_ms: int) -> Plan[E_co]:
        """Called once after replay: restart timers in full from now_ms (R58), resume what was under way (R49)."""
        ...

    def next_deadline(self) -> int | None:
        """When `expire` should next be called, on the monotonic clock; None when nothing is pending."""
        ...

    def expire(self, now_ms: int) -> Plan[E_co]: ...
