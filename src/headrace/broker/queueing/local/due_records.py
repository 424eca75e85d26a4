"""Driver: letting records go whose time has come, on topics with `headrace.delay.enabled` (Q7).

Whatever waits in a partition is a queue of its own, `delays/<topic>`, which this broker receives from while it leads the
partition's journal. A due record is written to its partition again, exactly once, whoever dies in between:

- Usually the broker leads the partition too. Then the copy in the log is the proof: the queue reads the log and takes what
  has a copy for done. Nothing is let go before everything is read that earlier leaders wrote and that we wrote last, and a
  copy that does not get committed was never there. One commit, so it is quick.
- Else the copy is sent to whoever leads, in one transaction with the acknowledgement (R60).
"""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakSet

from headrace.broker.queueing import names
from headrace.broker.queueing.local.delayed import mark_released
from headrace.broker.queueing.local.hosted import Hosted, QueueLoad
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.queueing.moves.transfers import NotMoved, Transfers
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import delay_spec
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.log.results import AppendResult
from headrace.queues import commands as engine
from headrace.queues.commands import Handle, Source
from headrace.records.batch import read_header
from headrace.records.build import Record, build_batch

log = logging.getLogger(__name__)

AT_ONCE = 1_000
LEASE_MS = 60_000
WAIT_MS = 60_000
PAUSE_S = 0.5


class DueRecords:
    def __init__(self, runtime: Runtime, local: LocalQueues, transfers: Transfers) -> None:
        self._runtime = runtime
        self._local = local
        self._transfers = transfers
        self._working: WeakSet[QueueLoad] = WeakSet()

    def watch(self, hosted: Hosted, load: QueueLoad, source: Source) -> None:
        """From now on, as long as this load lasts."""
        if load not in self._working:
            self._working.add(load)
            load.spawn(self._work(hosted, load, source), f"delays of {hosted.data.tp}")

    async def _work(self, hosted: Hosted, load: QueueLoad, source: Source) -> None:
        local, spec = self._local, delay_spec(source.topic)
        written_to = hosted.data.log.end_offset  # an earlier load may have written copies just now
        doubtful: tuple[Handle, ...] = ()
        while not load.ended:
            try:
                if not self._knows_the_log(hosted, source, written_to):
                    await hosted.told_more(PAUSE_S)
                    continue
                if doubtful:
                    handles, doubtful = doubtful, ()
                    await local.release(source, handles, 0)  # those without a copy; the others are done
                found = await local.receive(
                    spec, AT_ONCE, visibility_ms=LEASE_MS, wait_ms=WAIT_MS, source=source
                )
                if found and hosted.data.is_leader:
                    doubtful = tuple(one.handle for one in found)
                    written_to = await self._copy(hosted, found)
                    doubtful = ()
                elif found:
                    await self._transfer(load, source, found)
            except HeadraceError as problem:
                log.info("%s: what is due waits: %s", source, problem.detail)
                written_to = hosted.data.log.end_offset
                await asyncio.sleep(PAUSE_S)

    def _knows_the_log(self, hosted: Hosted, source: Source, written_to: int) -> bool:
        """Everything that may hold a copy has been read."""
        counts = hosted.machine.counts(source) if hosted.ready else None
        if counts is None:
            return False
        if not hosted.data.is_leader:
            return True  # then copies are made in transactions, which are settled before a shard loads
        entries = hosted.data.log.epochs.entries
        began = entries[-1].start_offset if entries else 0
        # What is beyond the end was ours and is cut off: another leader has been there meanwhile.
        return counts.indexed_to >= max(began, min(written_to, hosted.data.log.end_offset))

    async def _copy(self, hosted: Hosted, found: list[DeliveredMessage]) -> int:
        """Where the copies end in the log. When it fails, nobody knows; what was written is read before anything else."""
        clock, data = self._runtime.clock, hosted.data
        refusal = data.refusal(-1)
        if refusal is not None:
            raise HeadraceError(refusal, "the partition takes no writes right now")
        wall_ms = clock.wall_ms()
        batch = mark_released(build_batch([_released(one.record, wall_ms) for one in found], wall_ms=wall_ms))
        appended = data.append(batch, read_header(batch), urgent=True)
        if not isinstance(appended, AppendResult):
            raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER, "the copies were not taken")
        committed: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
        data.when_committed(appended.last_offset + 1, clock.now_ms() + LEASE_MS, committed.set_result)
        kind = await committed
        if kind is not ErrorKind.NONE:
            raise HeadraceError(kind, "nobody knows whether the copies are there")
        return appended.last_offset + 1

    async def _transfer(self, load: QueueLoad, source: Source, found: list[DeliveredMessage]) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        handles = tuple(one.handle for one in found)
        letters = {
            TopicPartition(source.topic, source.partition): [_released(one.record, wall_ms) for one in found]
        }
        try:
            await self._transfers.transfer(
                load,
                letters,
                engine.Ack(source, handles, engine.Outcome.MOVED),
            )
        except NotMoved:
            await self._local.release(source, handles, 0)
            raise


def _released(record: Record, wall_ms: int) -> Record:
    ours = (names.DELAY_MS, names.DELIVER_AT, names.DELAY_LEVEL)
    kept = tuple(header for header in record.headers if header[0] not in ours)
    return Record(record.key, record.value, (*kept, (names.DELAYED, b"%d" % record.offset)), wall_ms)
