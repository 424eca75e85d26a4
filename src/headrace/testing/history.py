"""Machine: what clients of a log saw: the input of the checker.

A key is one topic-partition. Every value that is sent is unique, so that a value found in a log names its writer. An
operation begins with an invocation and ends OK (it happened), FAIL (it did not) or INFO (nobody knows). A client that
crashed comes back under a new process number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

Key = Hashable
Value = Hashable
Action = Literal["assign", "subscribe", "send", "poll", "txn", "crash"]


class OperationOutcome(Enum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Send(NamedTuple):
    key: Key
    value: Value
    offset: int | None = None
    """None when the broker did not tell."""


class Poll(NamedTuple):
    records: Mapping[Key, Sequence[tuple[int, Value]]] = {}
    """Per key, (offset, value) in the order they were handed out."""


Step = Send | Poll


@dataclass(slots=True)
class RecordedOperation:
    """One operation from its invocation to its end."""

    number: int
    process: int
    action: Action
    outcome: OperationOutcome
    steps: tuple[Step, ...] = ()
    keys: tuple[Key, ...] = ()
    """Of assign and subscribe: the new, whole set."""
    rebalanced: frozenset[Key] = frozenset()
    """Keys that were given to this client anew while the operation ran."""
    invoked_at: int = 0
    """Position among all events of the history, for the order in real time."""
    completed_at: int | None = None
    """None for INFO: it may take effect at any later moment."""
    invoked_ms: int = 0
    completed_ms: int = 0

    def sends(self) -> list[Send]:
        return [step for step in self.steps if isinstance(step, Send)]

    def polls(self) -> list[Poll]:
        return [step for step in self.steps if isinstance(step, Poll)]

    def sent_to(self, key: Key) -> list[Send]:
        return [send for send in self.sends() if send.key == key]

    def polled_from(self, key: Key) -> list[tuple[int, Value]]:
        return [record for poll in self.polls() for record in poll.records.get(key, ())]

    def sent_keys(self) -> list[Key]:
        return list(dict.fromkeys(send.key for send in self.sends()))

    def polled_keys(self) -> list[Key]:
        return list(dict.fromkeys(key for poll in self.polls() for key in poll.records))


@dataclass(slots=True)
class OperationHistory:
    """Collects events in the order they happen; one open operation per process at a time."""

    operations: list[RecordedOperation] = field(default_factory=list)
    _event_count: int = 0

    def invoke(
        self,
        process: int,
        action: Action,
        steps: Iterable[Step] = (),
        *,
        keys: Iterable[Key] = (),
        now_ms: int = 0,
    ) -> RecordedOperation:
        operation = RecordedOperation(
            len(self.operations), process, action, OperationOutcome.INFO, tuple(steps), tuple(keys),
            invoked_at=self._event_count, invoked_ms=now_ms, completed_ms=now_ms,
        )  # fmt: skip
        self._event_count += 1
        self.operations.append(operation)
        return operation

    def complete(
        self,
        operation: RecordedOperation,
        outcome: OperationOutcome,
        steps: Iterable[Step] | None = None,
        *,
        rebalanced: Iterable[Key] = (),
        now_ms: int = 0,
    ) -> None:
        """An operation that is never completed counts as INFO."""
        operation.outcome = outcome
        if steps is not None:
            operation.steps = tuple(steps)
        operation.rebalanced = frozenset(rebalanced)
        operation.completed_ms = now_ms
        if outcome is not OperationOutcome.INFO:
            operation.completed_at = self._event_count
        self._event_count += 1
