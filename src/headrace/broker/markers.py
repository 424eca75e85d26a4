"""Driver: commit and abort markers: writing them here, and sending them until every partition has one (R43, R49)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from headrace.broker.connections import Connections
from headrace.broker.groups import Groups
from headrace.broker.hosts import ShardHost
from headrace.broker.internal_topics import OFFSETS_TOPIC
from headrace.broker.introductions import Introductions
from headrace.broker.load import Load, setter
from headrace.broker.marker_mail import MarkerMail
from headrace.broker.partition import Partition
from headrace.broker.peers import Peers
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Rejected
from headrace.core.ports import Clock
from headrace.records.build import build_control_batch
from headrace.transactions.commands import MarkersWritten, SendMarkers, TransactionEffect
from headrace.transactions.shard import TransactionShard

log = logging.getLogger(__name__)

RETRY_S = 0.1
COMMIT_MS = 10_000


class Markers:
    """Writes markers into the partitions that are led here."""

    def __init__(self, clock: Clock, connections: Connections, groups: Groups) -> None:
        self._clock = clock
        self._connections = connections
        self._groups = groups

    def write(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        done: Callable[[ErrorKind], None],
    ) -> None:
        """Append one marker and call `done` when it is committed.

        Written twice in a row it does no harm (R49); written after the next transaction of the same epoch has begun, it
        ends that one (F4). So whoever repeats it sees to it that the earlier never comes after the later."""
        refusal = partition.refusal(-1)
        if refusal is not None:
            done(refusal)
            return
        verdict = partition.log.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        if isinstance(verdict, Rejected):
            done(verdict.kind)
            return
        wall_ms = self._clock.wall_ms()
        batch = build_control_batch(commit, producer_id, producer_epoch, coordinator_epoch, wall_ms)
        try:
            last_offset = partition.append_internal(batch, urgent=True)
        except HeadraceError as problem:
            done(problem.kind)
            return
        # R45, R47: whatever comes now belongs to the next transaction, or to nobody.
        partition.verifications.marker_written(
            producer_id, producer_epoch, commit=commit, newest_connection_id=self._connections.newest_id
        )

        def committed(kind: ErrorKind) -> None:
            if kind is ErrorKind.NONE and partition.tp.topic == OFFSETS_TOPIC:
                self._groups.marker_committed(partition.tp.partition, producer_id, producer_epoch, commit)
            done(kind)

        partition.when_committed(last_offset + 1, self._clock.now_ms() + COMMIT_MS, committed)


TransactionLoad: TypeAlias = Load[TransactionShard, TransactionEffect]


class MarkerSender:
    """Sends the markers of a transaction for the load that decided or resumed it, and only as long as that load waits for
    them: each attempt asks its machine (F4).

    Repeats a marker only when the connection that carried it before is closed, and then over a newer one: the receiver
    hears only the newest, so of a marker and its repetition the earlier never comes after the later (R47). That holds from
    one load to the next, too: all letters to a broker go one after the other, and what an ended load has not sent yet
    is not sent any more."""

    def __init__(self, host: ShardHost, introductions: Introductions, markers: Markers) -> None:
        self._host = host
        self._markers = markers
        # Its own connections: a marker waits for its commit, and nobody else should wait behind it.
        self._mail = MarkerMail(
            host.runtime, Peers(host.image, introductions), self._settled, COMMIT_MS / 1000 + 5
        )

    def send(self, load: TransactionLoad, effect: SendMarkers) -> None:
        load.spawn(self._deliver(load, effect), f"markers of {effect.transactional_id!r}")

    async def _deliver(self, load: TransactionLoad, effect: SendMarkers) -> None:
        """R49: Prepare is irreversible, so this goes on until every partition is done or we are no longer the one."""
        machine = load.machine
        while left := machine.unmarked(effect.transactional_id, effect.marker_round):
            found = await asyncio.gather(
                *(self._write(leader, effect, tps) for leader, tps in self._by_leader(left).items())
            )
            written = {tp for partitions in found for tp in partitions}
            if written:
                load.tell(MarkersWritten(effect.transactional_id, effect.marker_round, frozenset(written)))
            if left - written:
                await asyncio.sleep(RETRY_S)

    def _by_leader(self, partitions: frozenset[TopicPartition]) -> dict[int | None, list[TopicPartition]]:
        """None: the topic is gone, so there is nothing left to be torn."""
        found: dict[int | None, list[TopicPartition]] = {}
        for tp in sorted(partitions):
            state = self._host.image.partition(*tp)
            gone = state is None and self._host.image.topic(tp.topic) is None
            leader = None if gone else -1 if state is None else state.leader
            found.setdefault(leader, []).append(tp)
        return found

    async def _write(
        self, leader: int | None, effect: SendMarkers, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Those that have it now, or need none."""
        if leader is None:
            return partitions
        if leader == self._host.node_id:
            return await self._write_here(effect, partitions)
        return await self._mail.send(leader, effect, partitions) if leader >= 0 else []

    async def _write_here(
        self, effect: SendMarkers, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        loop = asyncio.get_running_loop()
        waits: list[tuple[TopicPartition, asyncio.Future[ErrorKind]]] = []
        for tp in partitions:
            partition, _ = self._host.find_partition(*tp)
            if partition is None:
                continue
            future: asyncio.Future[ErrorKind] = loop.create_future()
            self._markers.write(
                partition,
                effect.producer_id,
                effect.producer_epoch,
                effect.coordinator_epoch,
                effect.commit,
                setter(future),
            )
            waits.append((tp, future))
        return [tp for tp, future in waits if self._settled(tp, await future)]

    def _settled(self, tp: TopicPartition, kind: ErrorKind) -> bool:
        if kind is ErrorKind.INVALID_PRODUCER_EPOCH:
            # The partition already knows a newer epoch of this producer, so this transaction has ended there.
            log.warning("%s: a marker came after a newer epoch", tp)
            return True
        return kind is ErrorKind.NONE
