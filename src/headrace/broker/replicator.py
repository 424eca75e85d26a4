"""Driver: pulls the partitions this broker follows, one task per leader, over the ordinary Fetch API (R11, R20-R26).

A fetch says "I hold everything below this offset", so it is sent only when that is on disk (headrace.flush=commit).
All partitions of one leader go into one long poll; it waits for the slowest sync rather than leave one of them
unconfirmed for the length of a poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.introductions import Introductions
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerConnection, PeerLost, PeerRefused
from headrace.broker.runtime import Runtime
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind
from headrace.core.limits import MIB
from headrace.replication.follower import FetchPlan
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import FetchPartitionResponse, decode_fetch_response
from headrace.wire.primitives import ProtocolError

log = logging.getLogger(__name__)

VERSION = 17
MAX_WAIT_MS = 150
"""A partition whose leader has just changed joins the next poll, so this is part of every write gap after a failover."""

PARTITION_BYTES = 4 * MIB
FETCH_BYTES = 16 * MIB
CALL_S = 10.0
PAUSE_S = 0.1
SYNC_PATIENCE_S = 1.0


class Asked(NamedTuple):
    partition: Partition
    plan: FetchPlan


class Replicator:
    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        introductions: Introductions,
        suspect: Callable[[int], None],
    ) -> None:
        """`suspect` is told of a broker whose process seems to be gone."""
        self._runtime = runtime
        self._image = image
        self._introductions = introductions
        self._suspect = suspect
        self.on_doubt: Callable[[int, bool], None] = lambda broker_id, doubted: None
        """Told when the connection to a leader broke, and when there is a new one."""
        self._following: dict[int, dict[Partition, None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._changed: dict[int, asyncio.Event] = {}

    def follow(self, partition: Partition, leader: int) -> None:
        self.forget(partition)
        if leader < 0:
            return
        self._following.setdefault(leader, {})[partition] = None
        self._changed.setdefault(leader, asyncio.Event()).set()
        if leader not in self._tasks:
            self._tasks[leader] = self._runtime.spawn(self._pull(leader), f"replicate from broker {leader}")

    def forget(self, partition: Partition) -> None:
        for partitions in self._following.values():
            partitions.pop(partition, None)

    async def _pull(self, leader: int) -> None:
        connection: PeerConnection | None = None
        try:
            while True:
                partitions = self._following.get(leader, {})
                if not partitions:
                    self._changed[leader].clear()
                    await self._changed[leader].wait()
                    continue
                try:
                    if connection is None:
                        connection = await self._connect(leader)
                        self.on_doubt(leader, False)
                    await self._round(connection, list(partitions))
                except PeerLost as problem:
                    log.info("replicating from broker %d: %s", leader, problem.detail)
                    if connection is not None:
                        connection.close()
                        connection = None
                        # The process may be gone: only a refused connection says so for certain.
                        self.on_doubt(leader, True)
                        continue
                    await asyncio.sleep(PAUSE_S)
                except ProtocolError as problem:
                    log.error("broker %d sent an answer that makes no sense: %s", leader, problem)
                    if connection is not None:
                        connection.close()
                    connection = None
                    await asyncio.sleep(PAUSE_S)
        finally:
            if connection is not None:
                connection.close()

    async def _connect(self, leader: int) -> PeerConnection:
        try:
            return await self._introductions.connect(leader)
        except PeerRefused:
            self._suspect(leader)
            raise

    async def _round(self, connection: PeerConnection, partitions: list[Partition]) -> None:
        await _synced(partitions)
        asked = [
            Asked(partition, plan)
            for partition in partitions
            if (plan := partition.following.next_fetch()) is not None
        ]
        if not asked:
            await asyncio.sleep(PAUSE_S)
            return
        body = encode_fetch_request(self._request(asked), VERSION)
        frame, position = await connection.exchange(ApiKey.FETCH, VERSION, [body], CALL_S)
        response = decode_fetch_response(frame, position, VERSION)
        if response.error_code:
            raise PeerLost(f"the fetch failed: {ErrorKind(response.error_code).name}")
        by_place = {(entry.partition.topic_id, entry.partition.tp.partition): entry for entry in asked}
        trouble = False
        for topic in response.topics:
            for row in topic.partitions:
                entry = by_place.get((topic.topic_id, row.partition))
                if entry is not None:
                    trouble = self._take(entry, row) or trouble
        # What was fetched is in the logs by now, and nothing else is kept of it.
        connection.recycle(frame)
        if trouble:
            await asyncio.sleep(PAUSE_S)

    def _request(self, asked: list[Asked]) -> FetchRequest:
        topics: dict[bytes, FetchTopic] = {}
        for partition, plan in asked:
            topic = topics.setdefault(partition.topic_id, FetchTopic("", partition.topic_id, []))
            topic.partitions.append(
                FetchPartition(
                    partition.tp.partition,
                    plan.leader_epoch,
                    plan.fetch_offset,
                    plan.last_fetched_epoch,
                    partition.log.start_offset,
                    PARTITION_BYTES,
                )
            )
        return FetchRequest(
            self._image.broker_id,
            self._introductions.broker_epoch,
            MAX_WAIT_MS,
            1,
            FETCH_BYTES,
            0,
            0,
            -1,
            list(topics.values()),
        )

    def _take(self, asked: Asked, row: FetchPartitionResponse) -> bool:
        """Give one partition its answer; whether it was bad news."""
        partition, plan = asked
        kind = ErrorKind(row.error_code)
        if kind is ErrorKind.OFFSET_OUT_OF_RANGE:
            partition.following.out_of_range(plan, row.log_start_offset)
        elif kind is not ErrorKind.NONE:
            partition.following.failed(plan, kind)
        elif row.diverging_epoch is not None:
            partition.following.diverging(plan, row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        else:
            records = row.records if isinstance(row.records, memoryview) else memoryview(b"")
            partition.following.fetched(plan, records, row.high_watermark, row.log_start_offset)
            return False
        return True


async def _synced(partitions: list[Partition]) -> None:
    """Until what was fetched last is on disk. A disk that hangs must not keep the other partitions from being fetched."""
    pending = [
        future for partition in partitions if (future := partition.following.sync_pending()) is not None
    ]
    if pending:
        await asyncio.wait(pending, timeout=SYNC_PATIENCE_S)
