"""Machine: incremental fetch sessions (KIP-227). A consumer of a thousand partitions names only what changed.

A session belongs to the connection it was opened on, which has no other, and ends with it. It holds no partition that does not
exist: whoever asks for one is served without a session. All sessions together remember a bounded number of partitions (A4).

What a session remembers about a partition changes when a response is built, never while a fetch is parked, so a
fetch that is answered late or dropped leaves the session as the client last saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from headrace.core import limits
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID

Key = tuple[str | bytes, int]

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MIN_EVICTION_AGE_MS = 120_000


class SessionPartition:
    """One partition a client wants, and what it was last told about it."""

    __slots__ = (
        "fetch_offset", "last_fetched_epoch", "leader_epoch", "log_start_offset", "max_bytes", "partition",
        "sent_high_watermark", "sent_log_start", "sent_stable", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_stable = -1
        self.sent_log_start = -1

    @property
    def key(self) -> Key:
        """By id when the client speaks ids (KIP-516), else by name."""
        return (self.topic_id if self.topic_id != ZERO_UUID else self.topic, self.partition)

    def has_news(self, got: Told) -> bool:
        return (
            got.high_watermark != self.sent_high_watermark
            or got.last_stable_offset != self.sent_stable
            or got.log_start_offset != self.sent_log_start
        )

    def told(self, got: Told) -> None:
        self.sent_high_watermark = got.high_watermark
        self.sent_stable = got.last_stable_offset
        self.sent_log_start = got.log_start_offset


class Told(Protocol):
    """What an answer says of a partition besides its data."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...


class FetchSession:
    __slots__ = ("by_id", "connection_id", "epoch", "id", "used_ms", "wanted")

    def __init__(self, session_id: int, by_id: bool, now_ms: int, connection_id: int) -> None:
        self.id = session_id
        self.connection_id = connection_id
        self.epoch = 1
        self.by_id = by_id
        self.used_ms = now_ms
        self.wanted: dict[Key, SessionPartition] = {}


class OpenedSession(NamedTuple):
    """How this fetch is to be answered."""

    session_id: int
    wanted: list[SessionPartition]
    incremental: bool
    """Only partitions with news are in the answer."""
    session: FetchSession | None


class FetchSessions:
    """All sessions of one broker; bounded, and the one unused for longest goes first."""

    def __init__(
        self,
        limit: int = limits.MAX_FETCH_SESSIONS,
        partition_limit: int = limits.MAX_FETCH_SESSION_PARTITIONS,
    ) -> None:
        self._limit = limit
        self._partition_limit = partition_limit
        self._sessions: dict[int, FetchSession] = {}
        self._of_connection: dict[int, int] = {}
        self.partitions = 0
        """Of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        by_id: bool,
        wanted: list[SessionPartition],
        forgotten: Iterable[Key],
        new_id: int,
        now_ms: int,
        connection_id: int = 0,
        exists: Callable[[SessionPartition], bool] = lambda wanted: True,
    ) -> OpenedSession | ErrorKind:
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(session_id)
            if epoch == FINAL_EPOCH:
                return OpenedSession(0, wanted, False, None)
            return self._start(by_id, wanted, new_id, now_ms, connection_id, exists)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorKind.FETCH_SESSION_ID_NOT_FOUND
        if session.by_id != by_id:
            return ErrorKind.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != epoch:
            return ErrorKind.INVALID_FETCH_SESSION_EPOCH
        if self.partitions + len(wanted) > self._partition_limit or not all(map(exists, wanted)):
            # Started over, it is served without a session, and hears of each partition what there is to say.
            self._end(session_id)
            return ErrorKind.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if epoch == 2**31 - 1 else epoch + 1
        session.used_ms = now_ms
        before = len(session.wanted)
        for key in forgotten:
            session.wanted.pop(key, None)
        for new in wanted:
            held = session.wanted.get(new.key)
            if held is None:
                session.wanted[new.key] = new
            else:
                held.fetch_offset, held.max_bytes = new.fetch_offset, new.max_bytes
                held.leader_epoch, held.last_fetched_epoch = new.leader_epoch, new.last_fetched_epoch
                held.log_start_offset = new.log_start_offset
        self.partitions += len(session.wanted) - before
        return OpenedSession(session.id, list(session.wanted.values()), True, session)

    def connection_closed(self, connection_id: int) -> None:
        self._end(self._of_connection.get(connection_id, 0))

    def _start(
        self,
        by_id: bool,
        wanted: list[SessionPartition],
        new_id: int,
        now_ms: int,
        connection_id: int,
        exists: Callable[[SessionPartition], bool],
    ) -> OpenedSession:
        self._end(self._of_connection.get(connection_id, 0))
        if not wanted or not all(map(exists, wanted)) or not self._make_room(len(wanted), now_ms):
            return OpenedSession(0, wanted, False, None)
        session = FetchSession(new_id, by_id, now_ms, connection_id)
        session.wanted = {entry.key: entry for entry in wanted}
        self._sessions[new_id] = session
        if connection_id:
            self._of_connection[connection_id] = new_id
        self.partitions += len(session.wanted)
        return OpenedSession(new_id, wanted, False, session)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.wanted)
            self._of_connection.pop(session.connection_id, None)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while len(self._sessions) >= self._limit or self.partitions + partitions > self._partition_limit:
            if not self._sessions:
                return False
            oldest = min(self._sessions.values(), key=lambda session: session.used_ms)
            if now_ms - oldest.used_ms < MIN_EVICTION_AGE_MS:
                return False
            self._end(oldest.id)
        return True

    @staticmethod
    def answered(session: FetchSession, with_data: Iterable[Key]) -> None:
        """Partitions that just gave data go to the back, so that a byte limit can't starve the others."""
        for key in with_data:
            entry = session.wanted.pop(key, None)
            if entry is not None:
                session.wanted[key] = entry
