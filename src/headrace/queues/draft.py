"""Machine: a plan in the making, for one source. Gives durable facts their place in the journal.

When enough deltas have piled up, the first durable fact of a plan is preceded by a checkpoint of the state as it was
before the plan: decide() changes nothing, so that state is the one at hand (journal.py has the reasons).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core.plan import NO_WAITER, Command, Fact, Plan, R, Reply
from headrace.queues.board import Board
from headrace.queues.commands import (
    DeathReason,
    MoveToDeadLetter,
    Outcome,
    QueueEffect,
    QueuePlan,
    ReadAhead,
    WakeReceivers,
)
from headrace.queues.deadlines import Lease
from headrace.queues.facts import (
    Checkpointed,
    Died,
    Doomed,
    ExtendedDurably,
    GivenBack,
    Grant,
    LeasedDurably,
    Positioned,
    Purged,
    Rescheduled,
    Returned,
    Settled,
)
from headrace.queues.ranges import Range, as_ranges
from headrace.queues.snapshot import PART_BYTES, encode_snapshot
from headrace.queues.state import SourceState

CHECKPOINT_DELTAS = 1_000
"""Deltas between two checkpoints, at least."""
_CHECKPOINT_BYTES_PER_DELTA = 32
"""A checkpoint is written when the deltas since the last have grown to about its size, so that a large state is
not rewritten all the time: the journal is at most a small multiple of the state."""


class QueueDraft:
    __slots__ = ("_place", "_woken", "effects", "facts", "partition", "wall_ms")

    def __init__(self, partition: SourceState, wall_ms: int) -> None:
        self.partition = partition
        self.wall_ms = wall_ms
        self.facts: list[Fact] = []
        self.effects: list[QueueEffect] = []
        self._place: tuple[int, int] | None = None
        self._woken = False

    # --- facts ---------------------------------------------------------------------------------------------------

    def do(self, fact: Fact) -> None:
        self.facts.append(fact)

    def settle(self, ranges: Iterable[Range], outcome: Outcome) -> None:
        seq, slot = self._next_place()
        self.facts.append(Settled(self.partition.source, seq, slot, tuple(ranges), outcome))

    def position(self, offset: int) -> None:
        seq, slot = self._next_place()
        self.facts.append(Positioned(self.partition.source, seq, slot, offset))

    def purge(self, upto: int) -> None:
        seq, slot = self._next_place()
        self.facts.append(Purged(self.partition.source, seq, slot, upto))

    def reschedule(self, offset: int, due_ms: int) -> None:
        seq, slot = self._next_place()
        self.facts.append(Rescheduled(self.partition.source, seq, slot, offset, due_ms))

    def lease_durably(self, grants: tuple[Grant, ...], visibility_ms: int, owner: str) -> None:
        seq, slot = self._next_place()
        epoch = self.partition.lease_epoch
        self.facts.append(
            LeasedDurably(self.partition.source, seq, slot, grants, visibility_ms, epoch, owner)
        )

    def extend_durably(self, offsets: tuple[int, ...], visibility_ms: int) -> None:
        seq, slot = self._next_place()
        self.facts.append(ExtendedDurably(self.partition.source, seq, slot, offsets, visibility_ms))

    # --- steps that more than one verb takes -----------------------------------------------------------------------

    def give_back(
        self, leased: Iterable[tuple[int, Lease]], delay_ms: Iterable[int], detail: str = ""
    ) -> None:
        """Leased messages go back: to be delivered again, or no more when they were delivered too often or expired."""
        partition = self.partition
        limit = partition.config.max_deliveries
        worn_out: list[Doomed] = []
        expired: list[Doomed] = []
        given_back: list[GivenBack] = []
        for (offset, lease), rest_ms in zip(leased, delay_ms, strict=True):
            if partition.is_expired(offset, self.wall_ms):
                expired.append(Doomed(offset, lease.delivery))
            elif limit and lease.delivery >= limit:
                worn_out.append(Doomed(offset, lease.delivery))
            else:
                last = given_back[-1] if given_back else None
                entry = GivenBack(offset, offset + 1, lease.delivery, rest_ms, lease.first_received_ms)
                if last is not None and last.end == offset and last[2:] == entry[2:]:
                    given_back[-1] = last._replace(end=offset + 1)
                else:
                    given_back.append(entry)
        if given_back:
            seq, slot = self._next_place()
            self.facts.append(Returned(partition.source, seq, slot, tuple(given_back)))
            if any(not entry.delay_ms for entry in given_back):
                self.wake_receivers()
        self.kill(worn_out, DeathReason.MAX_DELIVERIES, detail)
        self.kill(expired, DeathReason.EXPIRED)

    def kill(self, doomed: list[Doomed], reason: DeathReason, detail: str = "") -> None:
        """To the dead letters if there are any, out of the queue if not."""
        if not doomed:
            return
        partition = self.partition
        config = partition.config
        if config.dead_letter and (reason is not DeathReason.EXPIRED or config.dead_letter_expired):
            seq, slot = self._next_place()
            self.facts.append(Died(partition.source, seq, slot, tuple(doomed), reason, detail))
            for offset, deliveries in doomed:
                self.effects.append(
                    MoveToDeadLetter(partition.source, config.dead_letter, offset, reason, deliveries, detail)
                )
        else:
            outcome = Outcome.EXPIRED if reason is DeathReason.EXPIRED else Outcome.ARCHIVED
            self.settle(as_ranges(one.offset for one in doomed), outcome)
        if partition.lanes.fifo:
            self.wake_receivers()  # the rest of its group may go on
        self.read_ahead()

    def read_ahead(self) -> None:
        """Something left the window by another door than a receive."""
        if self.partition.config.indexed and self.partition.indexed_end < self.partition.end_offset:
            self.effects.append(ReadAhead(self.partition.source))

    def wake_receivers(self) -> None:
        if not self._woken:
            self._woken = True
            self.effects.append(WakeReceivers(self.partition.source.queue))

    def plan(self, command: Command[R], value: R) -> QueuePlan:
        waiter = command.waiter
        replies = () if waiter == NO_WAITER else (Reply(waiter, value),)
        return Plan(self.facts, replies, self.effects)

    # --- the journal -----------------------------------------------------------------------------------------------

    def _next_place(self) -> tuple[int, int]:
        if self._place is None:
            at = self.partition.checkpoint
            slot = at.seq - at.base_seq
            if slot >= max(CHECKPOINT_DELTAS, at.bytes // _CHECKPOINT_BYTES_PER_DELTA):
                self._checkpoint()
                slot = 0
            self._place = at.seq + 1, slot
        else:
            seq, slot = self._place
            self._place = seq + 1, slot + 1
        return self._place

    def _checkpoint(self) -> None:
        at = self.partition.checkpoint
        image = encode_snapshot(self.partition)
        parts = tuple(image[start : start + PART_BYTES] for start in range(0, len(image), PART_BYTES))
        side = 1 - at.side
        surplus = max(0, at.parts[side] - len(parts))
        self.facts.append(Checkpointed(self.partition.source, at.seq, side, parts, surplus))


def apply_checkpointed(board: Board, partition: SourceState, fact: Checkpointed, now_ms: int) -> None:
    at = partition.checkpoint
    at.base_seq, at.side = fact.seq, fact.side
    at.parts[fact.side] = len(fact.parts)
    at.bytes = sum(map(len, fact.parts))
