"""Driver: the record batches of an offset range, from the broker that leads the partition.

One request is always on the way while the caller decodes what came before. Only batches that hold records for the
caller are handed out: no markers, nothing of aborted transactions (read_committed), nothing outside of the range.

Invariant: the batches of a range are the same however often it is read, unless retention took some of them; then
failOnDataLoss decides between an error and going on behind the gap.
"""

from __future__ import annotations

import atexit
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import ZERO_UUID
from headrace.core.ports import Buffer
from headrace.records.batch import BatchHeader, CorruptBatch, crc_matches, scan
from headrace.records.read import read_control
from headrace.spark.connection import BlockingConnection, ClusterAccess, ConnectionLost
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import EARLIEST, FETCHES, READ_COMMITTED, SyncClient, check, pause
from headrace.wire.api import ApiKey
from headrace.wire.fetch import TOPIC_IDS, FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import (
    AbortedTransaction,
    FetchPartitionResponse,
    decode_fetch_response,
)

log = logging.getLogger(__name__)

_WAIT_MS = 500
_STALLED_SECONDS = 60.0
_MOVED = {
    ErrorKind.NOT_LEADER_OR_FOLLOWER,
    ErrorKind.LEADER_NOT_AVAILABLE,
    ErrorKind.FENCED_LEADER_EPOCH,
    ErrorKind.UNKNOWN_LEADER_EPOCH,
    ErrorKind.REPLICA_NOT_AVAILABLE,
    ErrorKind.OFFSET_NOT_AVAILABLE,
    ErrorKind.KAFKA_STORAGE_ERROR,
    ErrorKind.NETWORK_EXCEPTION,
    ErrorKind.UNKNOWN_TOPIC_ID,
}


_OTHER_TOPIC = {
    ErrorKind.UNKNOWN_TOPIC_ID,
    ErrorKind.INCONSISTENT_TOPIC_ID,
    ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
}
LOSS_HINT = "To go on: on_loss=skip passes over what is gone, on_loss=reset also begins at the start of a topic that was created again"


class Piece(NamedTuple):
    """Some batches in one buffer, which is valid until the next piece is asked for."""

    buffer: Buffer
    batches: list[tuple[int, BatchHeader]]
    first: int = 0
    """Records below this are not for the caller, though they are in the first batch."""


_clients: dict[ClusterAccess, SyncClient] = {}


def shared_client(access: ClusterAccess) -> SyncClient:
    """The client of this process. Spark uses a Python worker for many tasks, one at a time, so connections live on."""
    if access not in _clients:
        _clients[access] = SyncClient(access)
        atexit.register(_clients[access].close)
    return _clients[access]


def fetch_range(
    client: SyncClient,
    wanted: OffsetRange,
    *,
    isolation: int,
    fail_on_data_loss: bool,
    max_bytes: int,
    where: str = "",
    markers: bool = False,
) -> Iterator[Piece]:
    """`where` asks the broker to leave out what does not match; one that is not ours sends everything. `markers`: the ends of
    transactions are handed out too."""
    return _RangeFetch(client, wanted, isolation, fail_on_data_loss, max_bytes, where, markers).pieces()


class _RangeFetch:
    def __init__(
        self,
        client: SyncClient,
        wanted: OffsetRange,
        isolation: int,
        fail_on_data_loss: bool,
        max_bytes: int,
        where: str,
        markers: bool,
    ) -> None:
        self._where = where
        self._markers = markers
        self._client = client
        self._range = wanted
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss
        self._max_bytes = max_bytes
        self._position = wanted.start
        self._on_the_way: BlockingConnection | None = None
        self._version = TOPIC_IDS
        self._moving = time.monotonic()

    def pieces(self) -> Iterator[Piece]:
        try:
            while self._position < self._range.end:
                answer = self._next_answer()
                if answer is None:
                    continue
                first = self._position
                batches, following = select_batches(
                    answer.records if isinstance(answer.records, memoryview) else b"",
                    self._range._replace(start=self._position),
                    answer.aborted_transactions or (),
                    self._isolation,
                    markers=self._markers,
                )
                if following > self._position:
                    self._moving = time.monotonic()
                    self._position = following
                else:
                    self._stalled(answer)
                if self._position < self._range.end:
                    self._ask()
                if batches:
                    assert isinstance(answer.records, memoryview)
                    yield Piece(answer.records, batches, first)
        finally:
            if self._on_the_way is not None:
                # Its answer would be taken for the answer to somebody else's request.
                self._client.drop(self._on_the_way)

    def _ask(self) -> None:
        try:
            connection = self._client.leader(self._range.tp, FETCHES)
            topic_id = self._range.topic_id
            if topic_id == ZERO_UUID:
                topic_id = self._client.topic(self._range.topic).topic_id
            partition = FetchPartition(
                self._range.partition, fetch_offset=self._position, partition_max_bytes=self._max_bytes
            )
            request = FetchRequest(
                -1, -1, _WAIT_MS, 1, self._max_bytes, self._isolation, 0, -1,
                [FetchTopic(self._range.topic, topic_id, [partition])], where=self._where,
            )  # fmt: skip
            version = _fetch_version(connection, topic_id)
            self._version = version
            connection.send(ApiKey.FETCH, version, [encode_fetch_request(request, version)])
            self._on_the_way = connection
        except HeadraceError as problem:
            if problem.kind in _OTHER_TOPIC and self._is_gone():
                return
            self._retry(problem)

    def _next_answer(self) -> FetchPartitionResponse | None:
        """None: try again, from wherever the position is now."""
        if self._on_the_way is None:
            self._ask()
        connection, self._on_the_way = self._on_the_way, None
        if connection is None:
            return None
        try:
            frame, position = connection.receive(reuse=True)
            answer = decode_fetch_response(frame, position, self._version)
            check(answer.error_code, f"fetch of {self._range.tp}")
            row = answer.topics[0].partitions[0]
            if row.error_code == ErrorKind.OFFSET_OUT_OF_RANGE:
                self._skip_lost()
                return None
            if row.error_code in _OTHER_TOPIC and self._is_gone():
                return None
            check(row.error_code, f"fetch of {self._range.tp}")
        except ConnectionLost as problem:
            self._client.drop(connection)
            self._retry(problem)
            return None
        except HeadraceError as problem:
            self._retry(problem)
            return None
        return row

    def _retry(self, problem: HeadraceError) -> None:
        if (
            problem.kind not in _MOVED
            or time.monotonic() - self._moving > self._client.access.request_seconds
        ):
            raise problem
        self._client.forget_leaders()
        pause()

    def _skip_lost(self) -> None:
        first = self._client.list_offsets({self._range.tp: EARLIEST})[self._range.tp]
        lost = f"offsets {self._position} to {min(first, self._range.end) - 1} of {self._range.tp} are gone"
        if self._fail_on_data_loss or first <= self._position:
            raise HeadraceError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                lost
                if first > self._position
                else f"offset {self._position} of {self._range.tp} does not exist",
                f"Retention deleted them. {LOSS_HINT}",
            )
        log.warning("%s; going on at %d", lost, first)
        self._position = first

    def _is_gone(self) -> bool:
        """The broker does not know the topic by its id: another one may have its name. False: it has not heard of it yet."""
        known = self._client.topics([self._range.topic]).get(self._range.topic)
        if known is not None and self._range.topic_id in (ZERO_UUID, known.topic_id):
            return False
        if self._fail_on_data_loss:
            became = "was deleted" if known is None else "was deleted and created again"
            raise HeadraceError(
                ErrorKind.UNKNOWN_TOPIC_ID,
                f"{self._range.topic} {became}: offsets {self._position} to {self._range.end - 1} of {self._range.tp} are gone",
                LOSS_HINT,
            )
        log.warning(
            "%s is gone; offsets %d to %d are passed over", self._range.tp, self._position, self._range.end
        )
        self._position = self._range.end
        return True

    def _stalled(self, answer: FetchPartitionResponse) -> None:
        if time.monotonic() - self._moving > _STALLED_SECONDS:
            raise HeadraceError(
                ErrorKind.REQUEST_TIMED_OUT,
                f"{self._range.tp} gives nothing at offset {self._position}, though {self._range.end} was its end "
                f"(high watermark {answer.high_watermark}, last stable offset {answer.last_stable_offset})",
            )


def _fetch_version(connection: BlockingConnection, topic_id: bytes) -> int:
    """By id where both sides can: what belongs to another topic of the same name is never taken for ours."""
    version = connection.version(ApiKey.FETCH)
    return version if topic_id != ZERO_UUID else min(version, TOPIC_IDS - 1)


def select_batches(
    buffer: Buffer,
    wanted: OffsetRange,
    aborted: Sequence[AbortedTransaction],
    isolation: int,
    *,
    markers: bool = False,
) -> tuple[list[tuple[int, BatchHeader]], int]:
    """The batches of an answer that hold committed records of the range, and the offset to go on from."""
    open_aborts = deque(sorted(aborted, key=lambda one: one.first_offset))
    aborting: set[int] = set()
    chosen: list[tuple[int, BatchHeader]] = []
    following = wanted.start
    for position, header in scan(buffer):
        if not crc_matches(buffer, position, header):
            raise CorruptBatch(f"the batch at offset {header.base_offset} of {wanted.tp} fails its CRC")
        if header.base_offset >= wanted.end:
            following = max(following, wanted.end)
            break
        following = max(following, header.next_offset)
        if isolation == READ_COMMITTED:
            while open_aborts and open_aborts[0].first_offset <= header.last_offset:
                aborting.add(open_aborts.popleft().producer_id)
            if header.is_control:
                marker = read_control(buffer, position)
                if marker is not None and not marker.commit:
                    aborting.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborting:
                continue
        if (markers or not header.is_control) and header.next_offset > wanted.start:
            chosen.append((position, header))
    return chosen, following
