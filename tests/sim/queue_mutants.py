"""Rules of queues switched off one at a time in the whole cluster: each breaks something that the checker notices (R56-R60)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from cluster_mutants import ALL
from queue_sim import QueueShape

from headrace.broker.load import Load
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.payloads import Payloads
from headrace.broker.queueing.moves.transfers import NotMoved, Transfers
from headrace.broker.queueing.placement.migration import GroupMigration
from headrace.broker.shards import Shard
from headrace.core.errors import HeadraceError
from headrace.core.plan import Plan
from headrace.http.sqs import attributes, queue_actions
from headrace.queues import commands, shard
from headrace.queues.ack import decide_ack
from headrace.queues.board import Board
from headrace.queues.dedup import DedupIndex
from headrace.queues.lanes import MAIN, Lane, Lanes
from headrace.queues.state import SourceState
from headrace.records.build import build_batch
from headrace.testing.nemesis import Fault, FaultKind

Patch = tuple[Any, str, Callable[..., Any]]

CRASHES = (FaultKind.KILL, FaultKind.POWER_CUT)
ROUGH = QueueShape(
    seconds=25.0,
    partitions=1,
    min_isr=1,
    producers=2,
    workers=3,
    pause_s=0.15,
    period_s=3.0,
    kinds=CRASHES,
    hostile=False,
    disk_faults=False,
    outages=False,
    delays=False,
)
FIFO = replace(ROUGH, fifo=True)
BUSY = replace(ROUGH, seconds=10.0, pause_s=0.05)
CALM = replace(ROUGH, seconds=6.0)
BLACKOUTS = tuple(
    fault
    for at in (3.0, 7.0)
    for fault in (
        Fault(at, 1.0, FaultKind.DISK_HANG, ALL, 0.0),
        Fault(at + 0.8, 0.3, FaultKind.POWER_CUT, ALL, 0.0),
    )
)
"""The power fails when no disk has taken anything for a while."""
JUMPS = (Fault(3.0, 0.1, FaultKind.CLOCK_JUMP, ALL, 60_000.0),)
"""A wall clock that jumps excuses no lease that ends early."""
STRETCHED = replace(FIFO, elastic=True, kinds=(FaultKind.SLOW,), workers=2)
DYING = replace(ROUGH, dead_letters=True, workers=2)


class QueueMutant(NamedTuple):
    rule: str
    breaks: str
    patches: tuple[Patch, ...]
    shape: QueueShape
    finds: str
    """What the report has to say; one of these, with bars between them."""
    seed: int = 0
    plan: tuple[Fault, ...] | None = None
    """Faults that lead to the trouble, where drawn ones find it too rarely."""

    def __str__(self) -> str:
        return f"{self.rule} {self.breaks}"


def _any_receipt_will_do(board: Board, command: commands.Ack, now_ms: int) -> Plan:
    partition = board.partitions.get(command.source)
    leases = partition.leases if partition is not None else {}
    handles = [
        handle._replace(delivery=lease.delivery, epoch=lease.epoch)
        if (lease := leases.get(handle.offset)) is not None
        else handle
        for handle in command.handles
    ]
    return decide_ack(board, replace(command, handles=tuple(handles)), now_ms)


_append = Load._append
_sent = Payloads.sent
_init_shard = Shard.__init__
_new_config = attributes.new_config
_restart_clocks = shard.restart_clocks


def _answer_before_it_is_committed(self: Load, journal: Any, producer: Any) -> None:
    gate = self._gate_offset
    _append(self, journal, producer)
    self._gate_offset = gate


class _WallClock:
    """Says how much time has passed by the wall clock."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._offset_ms = runtime.clock.wall_ms() - runtime.clock.now_ms()
        self.clock = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def now_ms(self) -> int:
        return int(self._runtime.clock.wall_ms() - self._offset_ms)

    def wall_ms(self) -> int:
        return int(self._runtime.clock.wall_ms())


def _leases_by_the_wall_clock(self: Shard, runtime: Any, *given: Any, **named: Any) -> None:
    _init_shard(self, _WallClock(runtime), *given, **named)  # type: ignore[arg-type]


def _leases_in_memory(*given: Any, **named: Any) -> Any:
    return replace(_new_config(*given, **named), journaled_leases=False)


def _no_full_timeout_after_a_failover(partition: SourceState, now_ms: int) -> None:
    """What was running goes on as if it had begun long ago."""
    for lease in partition.leases.values():
        lease.visibility_ms = min(lease.visibility_ms, 1)
    _restart_clocks(partition, now_ms)


def _one_by_one_is_too_slow(self: Lanes, lane: Lane) -> None:
    level = self.levels[lane.level]
    if lane.ready.count:
        level.setdefault(lane.id, lane)
        return
    level.pop(lane.id, None)
    if lane.id != MAIN and lane.unused:
        del self.by_id[lane.id], self._by_key[lane.level, lane.group]
        self._free_ids.append(lane.id)


async def _first_there_then_here(self: Transfers, load: Any, letters: Any, command: Any) -> Any:
    """Written to the dead letters, and done some time later."""
    try:
        await _write(self, load, letters)
        await asyncio.sleep(1.0)
        return await load.submit(command)
    except HeadraceError as problem:
        raise NotMoved(problem.kind, problem.detail) from problem


async def _first_here_then_there(self: Transfers, load: Any, letters: Any, command: Any) -> Any:
    """Done, and written to the dead letters some time later."""
    answer = await load.submit(command)
    await asyncio.sleep(1.0)
    await _write(self, load, letters)
    return answer


async def _write(transfers: Transfers, load: Any, letters: Any) -> None:
    """In a transaction of its own, which knows nothing of what is done with the messages here."""
    client = transfers._host.transaction(f"mutant/{load.shard.partition.tp}")
    await client.begin()
    await client.add(letters)
    for target, records in letters.items():
        batch = build_batch(
            records,
            wall_ms=0,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=client.next_sequence(target, len(records)),
            transactional=True,
        )
        await client.produce(target, bytearray(batch))
    await client.end(commit=True)


async def _off_to_the_new_partition(*_: Any) -> None:
    """Whatever the old one still holds of the group."""


def _the_wrong_message(self: Payloads, base_offset: int, records: Any) -> None:
    _sent(self, base_offset + 1, records)


MUTANTS = [
    QueueMutant("C6", "a queue is looked for where it was", ((Layouts, "forget", lambda self: None),), ROUGH, "where it was"),
    QueueMutant("R57", "memory is not what the log says", ((Payloads, "sent", _the_wrong_message),), CALM, "would hand out"),
    QueueMutant("R56", "any receipt deletes", ((shard._DECIDE, "Ack", _any_receipt_will_do),), replace(ROUGH, kinds=(FaultKind.SLOW,)), "vanished", 1),
    QueueMutant("R57", "answers do not wait for the journal", ((Load, "_append", _answer_before_it_is_committed),), BUSY, "resurrection|early-redelivery", 2, BLACKOUTS),
    QueueMutant("R57", "receives are not journaled", ((queue_actions, "new_config", _leases_in_memory),), ROUGH, "early-redelivery"),
    QueueMutant("R58", "timeouts do not restart at a failover", ((shard, "restart_clocks", _no_full_timeout_after_a_failover),), ROUGH, "early-redelivery"),
    QueueMutant("R58", "leases are measured by the wall clock", ((Shard, "__init__", _leases_by_the_wall_clock),), CALM, "early-redelivery", 1, JUMPS),
    QueueMutant("R59", "a group has many batches out", ((Lanes, "refresh", _one_by_one_is_too_slow),), FIFO, "fifo-violation"),
    QueueMutant("R59", "a deduplication id is forgotten", ((DedupIndex, "find", lambda *_: None), (DedupIndex, "sift", lambda self, messages, window_ms: ((), (), 0))), FIFO, "dedup-violation"),
    QueueMutant("R59", "a group moves before its old partition is through with it", ((GroupMigration, "decide", _off_to_the_new_partition),), STRETCHED, "fifo-violation", 2),
    QueueMutant("R60", "a dead letter is written before it is done", ((Transfers, "transfer", _first_there_then_here),), DYING, "twice", 1),
    QueueMutant("R60", "a dead letter is done before it is written", ((Transfers, "transfer", _first_here_then_there),), DYING, "vanished", 1),
]  # fmt: skip
