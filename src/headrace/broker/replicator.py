"""Driver: pulls the partitions this broker follows, one task per leader, over the ordinary Fetch API (R11, R20-R26).

A fetch says "I hold everything below this offset", so it is sent only when that is on disk (headrace.flush=commit).
All partitions of one leader go into one long poll; it waits for the slowest sync rather than leave one of them
unconfirmed for the length of a poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from headrace.broker.introductions import Introductions
from headrace.broker.liveness import Liveness
from headrace.broker.partition import Partition
from headrace.broker.peer import PeerConnection, PeerLost, PeerRefused
from headrace.broker.runtime import Runtime
from headrace.broker.supervision import Supervised
from headrace.broker.throttles import ReplicationThrottle
from headrace.cluster.broker_configs import FOLLOWER_THROTTLED_RATE
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_REQUEST_PARTITIONS, MIB
from headrace.replication.follower import FetchPlan
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import FetchPartitionResponse, decode_fetch_response
from headrace.wire.primitives import ProtocolError

T = TypeVar("T")

log = logging.getLogger(__name__)

VERSION = 17
MAX_WAIT_MS = 500
"""How long a leader that has nothing new lets us wait. A partition that joins meanwhile ends the wait (decision 0105)."""

PARTITION_BYTES = 4 * MIB
FETCH_BYTES = 16 * MIB
CALL_S = 10.0
PAUSE_S = 0.1
SYNC_PATIENCE_S = 1.0


class PlannedFetch(NamedTuple):
    partition: Partition
    plan: FetchPlan


class Replicator:
    def __init__(
        self,
        runtime: Runtime,
        image: ClusterImage,
        introductions: Introductions,
        liveness: Liveness,
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._introductions = introductions
        self._liveness = liveness
        self._throttle = ReplicationThrottle(runtime, image, FOLLOWER_THROTTLED_RATE)
        self._following: dict[int, dict[Partition, None]] = {}
        self._tasks: dict[int, Supervised] = {}
        self._changed: dict[int, asyncio.Event] = {}
        self._joined: set[int] = set()
        """Leaders of whom a partition is followed that no fetch has asked for yet."""
        self._polling: dict[int, PeerConnection] = {}
        """Where a long poll is under way that nobody has cut short."""

    def follow(self, partition: Partition, leader: int) -> None:
        self.forget(partition)
        if leader < 0:
            return
        self._following.setdefault(leader, {})[partition] = None
        self._changed.setdefault(leader, asyncio.Event()).set()
        self._joined.add(leader)
        self._cut_short(leader)
        if leader not in self._tasks:
            self._tasks[leader] = self._runtime.supervise(
                f"replicate from broker {leader}", lambda: self._pull(leader)
            )

    def followed(self) -> Iterator[Partition]:
        for partitions in self._following.values():
            yield from partitions

    def forget(self, partition: Partition) -> None:
        for partitions in self._following.values():
            partitions.pop(partition, None)

    def _cut_short(self, leader: int) -> None:
        """This is part of every write gap after a failover: who joins can't wait for a poll that knows nothing of it."""
        connection = self._polling.pop(leader, None)
        if connection is not None:
            self._runtime.spawn(self._ask_for_nothing(connection), f"cut a poll of broker {leader} short")

    async def _ask_for_nothing(self, connection: PeerConnection) -> None:
        """A leader does not let a follower wait that has sent another request behind its long poll."""
        body = encode_fetch_request(self._request([], 0), VERSION)
        try:
            await connection.exchange(ApiKey.FETCH, VERSION, [body], CALL_S)
        except PeerLost:
            pass  # whoever waits for the poll itself hears of it

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
                        self._liveness.doubt(leader, False)
                    self._joined.discard(leader)
                    await self._round(leader, connection, take_turn(partitions))
                except PeerLost as problem:
                    log.info("replicating from broker %d: %s", leader, problem.detail)
                    if connection is not None:
                        connection.close()
                        connection = None
                        # The process may be gone: only a refused connection says so for certain.
                        self._liveness.doubt(leader, True)
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
            self._liveness.suspect(leader)
            raise

    async def _round(self, leader: int, connection: PeerConnection, partitions: list[Partition]) -> None:
        await _synced(partitions)
        asked = [
            PlannedFetch(partition, plan)
            for partition in partitions
            if not (self._throttle.is_spent and self._is_throttled(partition))
            and (plan := partition.following.next_fetch()) is not None
        ]
        if not asked:
            await asyncio.sleep(PAUSE_S)
            return
        # Whoever rests is asked for again in time, though others have nothing new.
        max_wait_ms = MAX_WAIT_MS if len(asked) == len(partitions) else int(PAUSE_S * 1000)
        if leader in self._joined:
            max_wait_ms = 0  # it came while we waited for the disk
        body = encode_fetch_request(self._request(asked, max_wait_ms), VERSION)
        self._polling[leader] = connection
        try:
            frame, position = await connection.exchange(ApiKey.FETCH, VERSION, [body], CALL_S)
        finally:
            self._polling.pop(leader, None)
        response = decode_fetch_response(frame, position, VERSION)
        if response.error_code:
            raise PeerLost(f"the fetch failed: {ErrorKind(response.error_code).name} ({response.error_code})")
        still_followed = self._following.get(leader, {})
        by_place = {(entry.partition.topic_id, entry.partition.tp.partition): entry for entry in asked}
        for topic in response.topics:
            for row in topic.partitions:
                entry = by_place.get((topic.topic_id, row.partition))
                # Its topic may have been deleted meanwhile: a closed log takes nothing.
                if entry is not None and entry.partition in still_followed:
                    if isinstance(row.records, memoryview) and self._is_throttled(entry.partition):
                        self._throttle.spend(len(row.records))
                    _take(entry, row)
        # What was fetched is in the logs by now, and nothing else is kept of it.
        connection.recycle(frame)

    def _is_throttled(self, partition: Partition) -> bool:
        named = partition.config.follower_replication_throttled_replicas
        if not named or not self._throttle.names(named, partition.tp.partition):
            return False
        state = self._image.partition(*partition.tp)
        return state is not None and self._image.broker_id not in state.isr

    def _request(self, asked: list[PlannedFetch], max_wait_ms: int) -> FetchRequest:
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
                    min(PARTITION_BYTES, self._throttle.most_bytes)
                    if self._is_throttled(partition)
                    else PARTITION_BYTES,
                )
            )
        return FetchRequest(
            self._image.broker_id,
            self._introductions.broker_epoch,
            max_wait_ms,
            1,
            FETCH_BYTES,
            0,
            0,
            -1,
            list(topics.values()),
        )


def _take(asked: PlannedFetch, row: FetchPartitionResponse) -> None:
    """Give one partition its answer. A partition in trouble rests by itself: the others are asked for at once."""
    following, plan = asked.partition.following, asked.plan
    kind = ErrorKind(row.error_code)
    if kind is ErrorKind.OFFSET_OUT_OF_RANGE:
        following.out_of_range(plan, row.log_start_offset)
    elif kind is not ErrorKind.NONE:
        following.failed(plan, kind)
    elif row.diverging_epoch is not None:
        following.diverging(plan, row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    else:
        records = row.records if isinstance(row.records, memoryview) else memoryview(b"")
        following.fetched(plan, records, row.high_watermark, row.log_start_offset)


def take_turn(partitions: dict[T, None], most: int = MAX_REQUEST_PARTITIONS) -> list[T]:
    """Whom to ask for in the next fetch: all, or as many as one may name (A3), who then go to the end of the line."""
    turn = list(islice(partitions, most))
    if len(turn) < len(partitions):
        for partition in turn:
            del partitions[partition]
            partitions[partition] = None
    return turn


async def _synced(partitions: list[Partition]) -> None:
    """Until what was fetched last is on disk. A disk that hangs must not keep the other partitions from being fetched."""
    pending = [
        future for partition in partitions if (future := partition.following.sync_pending()) is not None
    ]
    if not pending:
        return
    # One round of group commit mostly serves them all, so whoever is waited for after the first is there already.
    timer = asyncio.get_running_loop().call_later(SYNC_PATIENCE_S, _let_go, pending)
    try:
        for future in pending:
            await future
    finally:
        timer.cancel()


def _let_go(pending: list[asyncio.Future[None]]) -> None:
    """Whoever is not on disk by now is left out of the next fetch (Follower.next_fetch)."""
    for future in pending:
        if not future.done():
            future.set_result(None)
