"""Driver: one replica of one partition on this broker. Owns its log and is its only writer.

R25: "check epoch, assign offset, write" happens in one call without an await, so two batches can never get one
offset. What is durable, replicated and visible is decided by the pure Leader machine; this class carries out
its effects and lets waiting producers and fetchers go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.broker.beginnings import Beginnings
from headrace.broker.commit_listeners import CommitListeners
from headrace.broker.disk_room import DiskRoom
from headrace.broker.flusher import Flusher
from headrace.broker.following import Following
from headrace.broker.low_watermark import LowWatermark
from headrace.broker.runtime import Runtime
from headrace.broker.schema_ids import SchemaIds
from headrace.broker.sequence_doubts import SequenceDoubts
from headrace.broker.watchlist import Watchlist
from headrace.cluster.configs import TopicConfig
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition, is_internal
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, FileSystem
from headrace.core.stored import Stored
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.results import ACCEPT, UNTOLD, AppendResult, Duplicate, LogCorrupt
from headrace.records.batch import LENGTH, LENGTH_PREFIX_BYTES, BatchHeader, read_header
from headrace.replication.acks import Acks
from headrace.replication.events import (
    AdvanceHighWatermark,
    Diverging,
    FailWaiters,
    LeaderEffect,
    LeaderEvent,
    LocalAppended,
    LocalDurable,
    RefuseFetch,
    RereadPartition,
)
from headrace.replication.leader import Leader
from headrace.transactions.verification import Verifications

log = logging.getLogger(__name__)

CommitCallback = Callable[[ErrorKind], None]

OS_FLUSH_MS = 60_000
"""With flush=os the kernel has long written the data by then; syncing it moves the recovery point."""

SETTLE_MS = 1_000

TRUSTED = -1
"""Instead of a ticket: a batch of our own making, whose maker has verified it."""


class FetchWaiter(Protocol):
    def wake(self) -> None: ...


class ReplicaWaiter(FetchWaiter, Protocol):
    def news(self, soon: bool) -> None:
        """There is nothing to fetch, but something to tell: the high watermark or the start of the log has moved."""
        ...


class Partition:
    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        partition_log: PartitionLog,
        config: TopicConfig,
        fs: FileSystem,
        runtime: Runtime,
        flusher: Flusher,
        delegate: Callable[[Partition, LeaderEffect], None],
        lease_held: Callable[[], bool],
        watchlist: Watchlist[Partition] | None = None,
    ) -> None:
        """`delegate` takes the leader's wishes that reach beyond this replica: ISR changes, stepping down.

        `lease_held` is asked each time somebody wants to trust our word alone (R7): a process that was stopped for a
        while must not answer even one request from the past.
        """
        self.tp = tp
        self.topic_id = topic_id
        self.is_internal = is_internal(tp.topic)
        self.log = partition_log
        self.config = config
        self.opens_batches = config.opens_batches
        self.looks_inside = self.opens_batches or config.validates_records
        self.fs = fs
        """Where the log lives: the disk, or memory (storage=memory)."""
        self.schema_ids: Callable[[], SchemaIds] | None = None
        """Which schemas its records may have, where the topic asks (schema_registry.py)."""
        self.room: DiskRoom | None = None
        """Where clients' data is refused before the disk is full (S15)."""
        self.failed = False
        self.unreadable_batches = 0
        """How often readers inside this broker have stepped over a batch that they could not open."""
        self._last_unreadable = -1
        self.leader_epoch = -1
        self.high_watermark = partition_log.start_offset
        self.on_commit = CommitListeners(runtime, tp)
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._runtime = runtime
        self._clock = runtime.clock
        self._flusher = flusher
        self._delegate = delegate
        self._lease_held = lease_held
        self._watchlist: Watchlist[Partition] = watchlist or Watchlist()
        self.on_failed: Callable[[Partition], None] = lambda partition: None
        """The replica can't be used any more; whoever holds a good copy should lead (S7, S22, S26)."""
        self._leader: Leader | None = None
        self.replica_waiters: dict[ReplicaWaiter, None] = {}
        """Followers that wait for the next append; consumers wait for the high watermark."""
        self.told: dict[int, tuple[int, int]] = {}
        """What each follower was last told in this leadership: the high watermark, and where the log starts."""
        self.has_near_readers = False
        """In this leadership a consumer was sent to a replica that is nearer to it."""
        self.following = Following(
            tp,
            partition_log,
            runtime,
            waits_for_sync=config.flush == "commit",
            request_flush=lambda size: self.request_flush(size, urgent=True, follows=True),
            set_high_watermark=self._follow_high_watermark,
            go_offline=lambda reason: self.mark_failed(),
        )
        # What an earlier life wrote down (R20); a leader that knows no more has no news of it for us.
        self.high_watermark = max(self.high_watermark, self.following.high_watermark)
        self._ready: asyncio.Future[None] | None = None
        self.verifications = Verifications()
        self._acks: Acks[CommitCallback] = Acks()
        self.doubts = SequenceDoubts()
        self.beginnings = Beginnings()
        self.low_watermark = LowWatermark()
        self._lazy_flush: asyncio.TimerHandle | None = None
        self.scrubbed_to = 0
        """How far the background reading has come (S22), and when it may begin again once it has read everything."""
        self.scrub_again_ms = 0
        self.bytes_in = self.messages_in = self.bytes_out = 0

    # -- leadership ------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self._leader is not None

    def become_leader(self, leader: Leader) -> None:
        """The log has begun this epoch on disk already (R10: PartitionLog.start_epoch)."""
        self.doubts.forget()
        self.beginnings.forget()
        self.low_watermark.begin_leadership()
        self.told.clear()
        self.has_near_readers = False
        self._fail_waiting(ErrorKind.NOT_LEADER_OR_FOLLOWER)
        self.leader_epoch = leader.leader_epoch
        self._leader = leader
        self.high_watermark = leader.high_watermark
        self.on_durable()
        self._carry_out(leader.step(LocalAppended(self.log.end_offset), self._runtime.clock.now_ms()))

    def follow(self, leader: int, leader_epoch: int, unclean_epoch: int = -1) -> None:
        """Another broker leads, or nobody does (-1)."""
        self.leader_epoch = leader_epoch
        self.following.follow(leader, leader_epoch, unclean_epoch)

    def _follow_high_watermark(self, offset: int) -> None:
        if self._leader is None:
            self.high_watermark = offset
            self._watchlist.moved[self] = None
            self.on_commit.tell(offset)
            self._wake_fetchers()

    def tell_leader(self, event: LeaderEvent) -> list[LeaderEffect]:
        """Something happened that only a leader cares about; what it answers to a fetch comes back."""
        leader = self._leader
        if leader is None:
            return []
        effects = leader.step(event, self._runtime.clock.now_ms())
        self._carry_out(effects)
        return effects

    @property
    def needs_ticks(self) -> bool:
        leader = self._leader
        return leader is not None and leader.needs_ticks

    @property
    def isr(self) -> tuple[int, ...]:
        return () if self._leader is None else self._leader.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return () if self._leader is None else self._leader.replicas

    def resign(self, kind: ErrorKind = ErrorKind.NOT_LEADER_OR_FOLLOWER) -> None:
        """R18: an append that was not committed while we led is never acknowledged by us."""
        if self._leader is not None:
            self._leader = None
            self.following.led_until_now(self.high_watermark)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(HeadraceError(kind))
        self._ready = None
        self._fail_waiting(kind)
        self._wake_fetchers()
        _wake(self.replica_waiters)

    def mark_failed(self) -> None:
        """S7: the disk under this replica can't be trusted; nothing more is acknowledged from it."""
        if not self.failed:
            self.failed = True
            self.resign(ErrorKind.KAFKA_STORAGE_ERROR)
            self.on_failed(self)

    async def wait_leader_ready(self) -> None:
        """Until the high watermark has reached the start of our own epoch (R19, R21)."""
        leader = self._leader
        if leader is None:
            raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER)
        if self.high_watermark >= leader.epoch_start_offset:
            return
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ready)

    # -- writing ---------------------------------------------------------------------------------------------

    @property
    def is_trusted_alone(self) -> bool:
        """Whether our own word that we lead is enough, without asking the followers (R7)."""
        return self._leader is not None and self._lease_held()

    @property
    def has_rivals(self) -> bool:
        """Whether somebody else could be leading instead of us."""
        return self._leader is not None and len(self._leader.replicas) > 1

    def refusal(self, acks: int) -> ErrorKind | None:
        """Why a produce can't be taken at all, before its batch is looked at."""
        leader = self._leader
        if leader is None:
            return ErrorKind.KAFKA_STORAGE_ERROR if self.failed else ErrorKind.NOT_LEADER_OR_FOLLOWER
        if acks == -1:
            # Where no follower confirms what we write, only our lease says that the topic is still there (R7, F1).
            if leader.is_left_alone and not self._lease_held():
                return ErrorKind.NOT_LEADER_OR_FOLLOWER
            return leader.acks_all_refusal()
        return leader.acks_some_refusal() if self._lease_held() else ErrorKind.NOT_LEADER_OR_FOLLOWER

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        *,
        urgent: bool,
        ticket: int = 0,
        wall_ms: int | None = None,
    ) -> AppendResult | Duplicate | Rejected:
        """Take one validated batch. The caller has asked `refusal` in the same turn of the loop.

        `ticket` is what the coordinator confirmed a transaction's first batch here with (R45). `wall_ms`: what the clock said in
        this turn of the loop, if the caller has looked.
        """
        producer_id = header.producer_id
        if producer_id >= 0 and not header.is_control:
            # A journal's transactional batches have no sequence: their coordinator has ordered them already.
            verdict = ACCEPT if header.base_sequence < 0 else self.log.check_producer(header)
            if isinstance(verdict, Rejected) and not self._may_refuse(header):
                # A leader that was replaced unawares misses what its successor took. Its client must ask again, not die.
                return Rejected(
                    ErrorKind.NOT_LEADER_OR_FOLLOWER, "finding out whether this broker still leads"
                )
            if isinstance(verdict, (Duplicate, Rejected)):
                return verdict
            if verdict is UNTOLD and not self.beginnings.may_begin(header):
                return Rejected(ErrorKind.NOT_LEADER_OR_FOLLOWER, "finding out where this producer begins")
            if header.is_transactional and not self.log.producers.has_open_transaction(
                producer_id, header.producer_epoch
            ):
                if ticket != TRUSTED and not self.verifications.holds(
                    producer_id, header.producer_epoch, ticket
                ):
                    return Rejected(
                        ErrorKind.INVALID_TXN_STATE, "the coordinator knows no such open transaction"
                    )
                self.verifications.appended(producer_id)
        appended = self._write(batch, header, self._clock.wall_ms() if wall_ms is None else wall_ms)
        if isinstance(appended, Rejected):
            return appended
        size = header[LENGTH] + LENGTH_PREFIX_BYTES
        self.messages_in += header.record_count
        self.bytes_in += size
        self.request_flush(size, urgent=urgent)
        leader = self._leader
        assert leader is not None
        effects = leader.appended(appended.last_offset + 1)
        if effects:
            self._carry_out(effects)
        if self.replica_waiters:
            _wake(self.replica_waiters)
        return appended

    def _may_refuse(self, header: BatchHeader) -> bool:
        """Whether we are sure enough that we lead to end a producer (see SequenceDoubts)."""
        if not self.has_rivals or self.doubts.is_sure(header):
            return True
        self._delegate(self, RereadPartition())
        return False

    def append_internal(self, batch: bytes | bytearray, *, urgent: bool, wall_ms: int | None = None) -> int:
        """Append a batch of our own making (journals, markers); its last offset. Raises when it can't be taken."""
        if (kind := self.refusal(-1)) is not None:
            raise HeadraceError(kind, f"{self.tp} takes no writes: {kind.name}")
        writable = memoryview(batch if isinstance(batch, bytearray) else bytearray(batch))
        result = self.append(writable, read_header(writable), urgent=urgent, ticket=TRUSTED, wall_ms=wall_ms)
        if isinstance(result, Rejected):
            raise HeadraceError(result.kind, result.detail)
        return result.last_offset

    def _write(self, batch: memoryview, header: BatchHeader, wall_ms: int) -> AppendResult | Rejected:
        result = self.log.append(batch, header, self.leader_epoch, wall_ms)
        if isinstance(result, Rejected) and self.log.failed is not None:
            log.critical("%s: %s", self.tp, self.log.failed)
            self.mark_failed()
        return result

    def when_committed(self, offset: int, deadline_ms: int, callback: CommitCallback) -> None:
        """Call back with NONE once everything below `offset` is committed, or with what went wrong instead."""
        if offset <= self.high_watermark:
            callback(ErrorKind.NONE)
        else:
            self._acks.add(callback, offset, deadline_ms)
            self._watchlist.waiting[self] = None

    async def settle_own_writes(self) -> None:
        """Until what was appended before this call is committed, if only our own disk keeps it from being so.

        An acks=1 producer is answered before the sync, and the high watermark follows the sync; so whoever asks where the
        log ends right after producing would otherwise be told of fewer records than it was promised.
        """
        end = self.log.end_offset
        if not self.is_leader or end <= self.high_watermark or len(self.isr) > 1:
            return
        done: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
        self.when_committed(end, self._runtime.clock.now_ms() + SETTLE_MS, done.set_result)
        self.request_flush(0, urgent=True)
        await done

    @property
    def has_waiting(self) -> bool:
        return len(self._acks) > 0

    def expire_waiting(self, now_ms: int) -> None:
        self._settle(self._acks.expire(now_ms), ErrorKind.REQUEST_TIMED_OUT)

    # -- what became durable and committed ---------------------------------------------------------------------

    def request_flush(self, size: int, *, urgent: bool, follows: bool = False) -> None:
        config = self.config
        if config.flush == "commit":
            self._flusher.request(self, size, urgent=urgent, follows=follows)
            return
        # Nobody waits for these syncs (S9), but recovery points and the files of closed segments do.
        unsynced = self.log.end_offset - self.log.durable_end
        if config.flush == "interval" and unsynced >= config.flush_messages:
            self._flush_lazily()
        elif self._lazy_flush is None:
            delay_ms = config.flush_ms if config.flush == "interval" else OS_FLUSH_MS
            self._lazy_flush = asyncio.get_running_loop().call_later(delay_ms / 1000, self._flush_lazily)

    def _flush_lazily(self) -> None:
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
            self._lazy_flush = None
        self._flusher.request(self, 0, urgent=False)

    def on_durable(self) -> None:
        self._watchlist.moved[self] = None
        leader = self._leader
        if leader is not None:
            self._carry_out(leader.step(LocalDurable(self.log.durable_end), self._runtime.clock.now_ms()))
        else:
            self.following.durable()

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceHighWatermark):
                self._advance(effect.offset)
            elif isinstance(effect, FailWaiters):
                self._fail_waiting(effect.kind)
            elif not isinstance(effect, (RefuseFetch, Diverging)):
                self._delegate(self, effect)

    def _advance(self, offset: int) -> None:
        self.high_watermark = offset
        self._watchlist.moved[self] = None
        waiting = self._acks.release(offset)
        if waiting:
            self._settle(waiting, ErrorKind.NONE)
        self.on_commit.tell(offset)
        ready, leader = self._ready, self._leader
        if ready is not None and leader is not None and offset >= leader.epoch_start_offset:
            self._ready = None
            if not ready.done():
                ready.set_result(None)
        if self.fetch_waiters:
            self._wake_fetchers()
        for waiter in self.replica_waiters:
            waiter.news(self.has_near_readers)

    def _wake_fetchers(self) -> None:
        _wake(self.fetch_waiters)

    def _fail_waiting(self, kind: ErrorKind) -> None:
        self._settle(self._acks.fail_all(), kind)

    def _settle(self, waiting: Iterable[CommitCallback], kind: ErrorKind) -> None:
        """Whoever can't take its answer must not keep the others from theirs (F16)."""
        for callback in waiting:
            try:
                callback(kind)
            except Exception as problem:
                self._runtime.unexpected("answer to a produce", problem, str(self.tp))

    def configure(self, config: TopicConfig, log_config: LogConfig) -> None:
        """The topic's configs have changed while it is in use (F7): nothing may remember the old ones."""
        self.config = config
        self.opens_batches = config.opens_batches
        self.looks_inside = self.opens_batches or config.validates_records
        self.log.config = log_config
        self.following.waits_for_sync = config.flush == "commit"
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
            self._lazy_flush = None
        if self.log.durable_end < self.log.end_offset and not self.failed:
            # What was written under the old promise is held to the new one: soon for somebody who waits, or on time.
            self.request_flush(0, urgent=True)

    def delete_records(self, offset: int) -> int | Rejected:
        start = self.log.delete_records(offset)
        self._watchlist.moved[self] = None
        self._wake_fetchers()
        self.start_moved()
        return start

    def start_moved(self) -> None:
        """The log begins later now: who counts what is in it looks again, as after a commit."""
        self.on_commit.tell(self.high_watermark)
        for waiter in self.replica_waiters:
            waiter.news(self.has_near_readers)

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        return self.log.producers.last_stable_offset(self.high_watermark)

    def epoch_refusal(self, client_epoch: int) -> ErrorKind:
        """R9: a client that speaks of another leadership than ours is told so."""
        if not self.is_leader:
            return ErrorKind.KAFKA_STORAGE_ERROR if self.failed else ErrorKind.NOT_LEADER_OR_FOLLOWER
        if client_epoch < 0 or client_epoch == self.leader_epoch:
            return ErrorKind.NONE
        return (
            ErrorKind.FENCED_LEADER_EPOCH
            if client_epoch < self.leader_epoch
            else ErrorKind.UNKNOWN_LEADER_EPOCH
        )

    def fetch_refusal(self, client_epoch: int, *, from_follower: bool, is_replica: bool = False) -> ErrorKind:
        """Why nothing can be read here. A consumer that asked for a near replica may read from a follower (KIP-392).

        Replicas go on without our lease: what they fetch counts by epochs alone, and acks=all needs them (R7, R36).
        """
        leader = self._leader
        if leader is not None:
            if not is_replica and (leader.read_refusal() is not None or not self._lease_held()):
                return ErrorKind.NOT_LEADER_OR_FOLLOWER
            return self.epoch_refusal(client_epoch)
        if (
            from_follower
            and not self.failed
            and self.following.leader >= 0
            and client_epoch in (-1, self.leader_epoch)
        ):
            return ErrorKind.NONE
        return self.epoch_refusal(client_epoch)

    def reader_refusal(self, client_epoch: int) -> ErrorKind:
        """R7, R19: until the high watermark has reached our own epoch, the end of the log is not known."""
        error = self.epoch_refusal(client_epoch)
        leader = self._leader
        if error is not ErrorKind.NONE or leader is None:
            return error
        if not self._lease_held():
            return ErrorKind.NOT_LEADER_OR_FOLLOWER
        return leader.latest_offset_refusal() or ErrorKind.NONE

    def read(self, offset: int, max_bytes: int, upto: int) -> Buffer | Rejected:
        try:
            data = self.log.read(offset, max_bytes, upto)
        except (LogCorrupt, OSError) as problem:
            return self._unreadable(problem)
        if not isinstance(data, Rejected):
            self.bytes_out += len(data)
        return data

    def read_or_lend(self, offset: int, max_bytes: int, upto: int) -> Buffer | Stored | Rejected:
        """For a client that takes bytes where they lie (decision 0050)."""
        try:
            data = self.log.read_or_lend(offset, max_bytes, upto)
        except (LogCorrupt, OSError) as problem:
            return self._unreadable(problem)
        if not isinstance(data, Rejected):
            self.bytes_out += len(data)
        return data

    def _unreadable(self, problem: Exception) -> Rejected:
        """S26: never serve damage; whoever holds a good copy should lead."""
        log.critical("%s can't be read: %s", self.tp, problem)
        self.mark_failed()
        return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, str(problem))

    def read_all(self, offset: int, max_bytes: int) -> Buffer:
        """Everything up to the end of the log, for loading coordinator state after `wait_leader_ready`."""
        data = self.read(offset, max_bytes, self.high_watermark)
        if isinstance(data, Rejected):
            raise HeadraceError(data.kind, data.detail)
        return data

    def step_over(self, offset: int, problem: object) -> None:
        """A5: a reader inside this broker has left out what it can't open; it was stored unseen, or long ago."""
        self.unreadable_batches += 1
        if offset > self._last_unreadable:
            self._last_unreadable = offset
            log.warning("%s: no reader can open what is at %d: %s", self.tp, offset, problem)


def _wake(waiters: dict[FetchWaiter, None] | dict[ReplicaWaiter, None]) -> None:
    woken = list(waiters)
    waiters.clear()
    for waiter in woken:
        waiter.wake()
