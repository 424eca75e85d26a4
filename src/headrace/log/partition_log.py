"""Machine: one partition's log: appends, reads, flushes, checkpoints.

Synchronous and single-writer: every method runs to its end without giving the loop away, so "check epoch, assign
offset, write" can not be interleaved (R25). What blocks on the disk is handed to the driver as a value: `begin_flush`
and `begin_checkpoint` say what to sync or write, `flush_done` and `checkpoint_done` take note that it happened.

What it consists of is `LogParts`. What makes it shorter stands on the same parts, each in its own file:

    Truncation   from the end, when replicas disagree (R23, R26)
    Retention    from the beginning (S20, S23)
    Compactor    from within (S21)

Invariants
- start_offset <= durable_end <= end_offset, except that start_offset may pass durable_end when records are deleted;
- every batch below durable_end was synced; the recovery point on disk is never above durable_end (S6);
- epochs, producers and aborted transactions are what the batches in the log make them (R40).
- after each operation, and after a crash at any point in it, reads find a log that existed before or the one that should be
  there now, and all that is derived from it fits.
"""

from __future__ import annotations

from errno import EIO

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, FileSystem
from headrace.core.stored import Stored
from headrace.core.tuples import new_tuple
from headrace.log import recovery
from headrace.log.aborted import AbortedIndex, AbortedTxn
from headrace.log.checkpoints import LogState
from headrace.log.compaction import Compaction, CompactionReport
from headrace.log.compactor import Compactor
from headrace.log.config import LogConfig
from headrace.log.epochs import LeaderEpochs
from headrace.log.index import MAX_RELATIVE_OFFSET
from headrace.log.parts import FULL_DISK, LogParts
from headrace.log.producers import ProducerTable
from headrace.log.replicated import check_replicated
from headrace.log.results import (
    Accept,
    AppendResult,
    Checkpoint,
    Duplicate,
    Flush,
    FoundOffset,
    LoadReport,
    RollReason,
    StartReason,
)
from headrace.log.retention import Retention, RetentionReport
from headrace.log.segment_cache import SegmentCache
from headrace.log.truncation import Truncation
from headrace.records.batch import (
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LENGTH,
    LENGTH_PREFIX_BYTES,
    PRODUCER_ID,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    read_header,
    stamp,
    stamp_log_append_time,
)


class PartitionLog:
    __slots__ = (
        "_compactor",
        "_files",
        "_flushes",
        "_parts",
        "_reader",
        "_retention",
        "_truncation",
        "directory",
        "end_offset",
        "epochs",
        "producers",
        "start_offset",
        "start_reason",
        "topic_id",
    )

    def __init__(self, parts: LogParts, topic_id: bytes, start_offset: int, end_offset: int) -> None:
        """Use `open`."""
        self._parts = parts
        self._files = parts.files
        self._flushes = parts.flushes
        self._reader = parts.reader
        self._truncation = Truncation(parts)
        self._retention = Retention(parts)
        self._compactor = Compactor(parts)
        self.directory = parts.directory
        self.topic_id = topic_id
        self.epochs: LeaderEpochs = parts.derived.epochs
        self.producers: ProducerTable = parts.derived.producers
        self.start_offset = start_offset
        self.start_reason: StartReason | None = None
        """Why the start moved last."""
        self.end_offset = end_offset

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        *,
        topic_id: bytes,
        wall_ms: int,
        cache: SegmentCache | None = None,
        repair: bool = False,
        refuse_holes: bool = False,
    ) -> tuple[PartitionLog, LoadReport]:
        """Open or create the log in `directory`. Raises LogCorrupt or WrongTopic, changing nothing that matters.

        `cache` is shared by the logs of a broker. `repair` cuts the log at damage instead of refusing, moving what it
        cuts into quarantine (S4, S12). `refuse_holes`: see recovery.
        """
        shared = cache if cache is not None else SegmentCache(fs)
        loaded = recovery.load(fs, directory, config, topic_id, wall_ms, shared, repair, refuse_holes)
        parts = LogParts(fs, directory, config, shared, loaded)
        return cls(parts, topic_id, loaded.state.log_start, loaded.end_offset), loaded.report

    # ---- what it is

    @property
    def config(self) -> LogConfig:
        return self._parts.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._parts.config = config
        self._parts.limits.set(config, self._parts.active)

    @property
    def size_bytes(self) -> int:
        return self._parts.segments.closed_bytes + self._parts.active.size

    @property
    def segment_count(self) -> int:
        return len(self._parts.segments)

    @property
    def roll_reason(self) -> RollReason | None:
        """Why the active segment began."""
        return self._parts.roll_reason

    @property
    def failed(self) -> str | None:
        """Why nothing may be written here any more (S7), None while all is well."""
        return self._parts.failure

    @property
    def aborted(self) -> AbortedIndex:
        return self._parts.derived.aborted

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction began."""
        return self.producers.first_open_offset

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """R48: for a read_committed fetch that returns [start, end)."""
        return self._parts.derived.aborted.overlapping(start, end)

    def check_producer(self, header: BatchHeader) -> Accept | Duplicate | Rejected:
        return self.producers.check(header)

    # ---- appending

    def start_epoch(self, epoch: int) -> None:
        """R10: on becoming leader, before the first append: the epoch begins at the log's end, and that is on disk.

        In a log that never had a batch its first batches say it, and no replica can differ with it about the past (decision 0045).
        """
        is_news = self.epochs.assign(epoch, self.end_offset)
        if self.is_unwritten:
            return
        if is_news or self._files.are_epochs_doubtful:
            self._files.write_epochs()

    @property
    def is_unwritten(self) -> bool:
        """No batch was ever written to it, and its files say nothing of a past (see creation)."""
        return not (self.end_offset or self._files.has_epochs_file or self._files.has_state_file)

    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, wall_ms: int
    ) -> AppendResult | Rejected:
        """One validated batch of a client (or a marker), at the end of the log, stamped in place."""
        parts = self._parts
        if parts.failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, parts.failure)
        active, limits, config = parts.active, parts.limits, parts.config
        base_offset = self.end_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        size = header[LENGTH] + LENGTH_PREFIX_BYTES
        if (
            active.size + size > limits.most_bytes
            or wall_ms >= limits.at_ms
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        ):
            refused = parts.make_room(size, last_offset, wall_ms, base_offset)
            if refused is not None:
                return refused
            active = parts.active
        if leader_epoch != self.epochs.latest:
            refused = parts.enter_epoch(leader_epoch, base_offset)
            if refused is not None:
                return refused
        append_time = -1
        if config.log_append_time:
            header = stamp_log_append_time(batch, 0, header, wall_ms)
            append_time = wall_ms
        stamp(batch, 0, base_offset, leader_epoch)
        assert active.file is not None
        try:
            active.file.append((batch,))
        except OSError as error:
            return self._write_failed(error)
        active.note(header, base_offset, config.index_interval_bytes)
        active.appended_ms = wall_ms
        if active.created_ms == 0:
            active.created_ms = wall_ms
            limits.set(config, active)
        if header[PRODUCER_ID] >= 0:
            parts.derived.absorb(header, batch, 0, base_offset, wall_ms)
        self.end_offset = last_offset + 1
        appended: AppendResult = new_tuple(AppendResult, (base_offset, last_offset, append_time))
        return appended

    def append_replicated(self, data: Buffer, wall_ms: int) -> AppendResult | Rejected:
        """R11: the leader's own bytes at the leader's own offsets. One write per segment they go to. A batch that is cut short ends the
        data; a compacted topic may leave offsets out, and they never go back.

        A leader's log may start in the middle of a batch (DeleteRecords), and so may a replica that begins there: it gets the
        batch whole, and starts where it was told to (as Kafka's followers do)."""
        start = self.start_offset
        if self.end_offset == start and self._parts.failure is None and len(data) >= HEADER_BYTES:
            try:
                header = read_header(data)
            except CorruptBatch as error:
                return Rejected(ErrorKind.CORRUPT_MESSAGE, str(error))
            if header.base_offset < start < header.next_offset and crc_matches(data, 0, header):
                try:
                    self.truncate_fully_and_start_at(header.base_offset)
                except OSError as error:
                    return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, str(error))
        result = self._append_batches(data, wall_ms)
        self.advance_start(start, StartReason.LEADER_START)
        return result

    def _append_batches(self, data: Buffer, wall_ms: int) -> AppendResult | Rejected:
        parts = self._parts
        if parts.failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, parts.failure)
        first_offset = self.end_offset
        # An epoch that we led and never wrote in began nothing: what comes here may be of an older one (R10, R11).
        is_empty = self.epochs.latest >= 0 and self.epochs.latest_start >= first_offset
        if is_empty or self._files.are_epochs_doubtful:
            self.epochs.truncate_end(first_offset)
            refused = parts.write_epochs()
            if refused is not None:
                return refused
        checked = check_replicated(data, first_offset, self.epochs.latest, gaps=parts.config.compact)
        if isinstance(checked, Rejected):
            return checked
        run_start = run_end = 0
        run: list[tuple[int, BatchHeader]] = []
        for at, header in checked:
            active, limits, size = parts.active, parts.limits, run_end - run_start
            if (
                active.size + size + header.size > limits.most_bytes
                or wall_ms >= limits.at_ms
                or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            ):
                refused = self._write_run(data, run, run_start, run_end, wall_ms)
                if refused is None:
                    refused = parts.make_room(header.size, header.last_offset, wall_ms, header.base_offset)
                if refused is not None:
                    return refused
                run, run_start = [], at
            run.append((at, header))
            run_end = at + header.size
        refused = self._write_run(data, run, run_start, run_end, wall_ms)
        if refused is not None:
            return refused
        return AppendResult(first_offset, self.end_offset - 1, -1)

    def _write_run(
        self, data: Buffer, run: list[tuple[int, BatchHeader]], start: int, end: int, wall_ms: int
    ) -> Rejected | None:
        if not run:
            return None
        parts = self._parts
        active, config = parts.active, parts.config
        assert active.file is not None
        for _, header in run:
            if header.leader_epoch != self.epochs.latest:
                refused = parts.enter_epoch(header.leader_epoch, header.base_offset)
                if refused is not None:
                    return refused
        try:
            active.file.append((memoryview(data)[start:end],))
        except OSError as error:
            return self._write_failed(error)
        interval = config.index_interval_bytes
        for at, header in run:
            if header.base_offset != active.next_offset:
                parts.sparse = True
            active.note(header, header.base_offset, interval)
            if header.producer_id >= 0:
                parts.derived.absorb(header, data, at, header.base_offset, wall_ms)
        if active.created_ms == 0:
            active.created_ms = wall_ms
            parts.limits.set(config, active)
        active.appended_ms = wall_ms
        self.end_offset = active.next_offset
        return None

    def _write_failed(self, error: OSError) -> Rejected:
        """S15: a full disk leaves the file as it was (the port's promise), and the log usable. The rest is final (S7)."""
        active = self._parts.active
        assert active.file is not None
        if active.file.size != active.size:
            return self.fail(f"an append failed: {error}")
        return self._parts.refuse(error, "an append failed")

    def fail(self, detail: str) -> Rejected:
        """S7: nothing is written here any more. Only opening the log anew, with its CRC scan, ends this."""
        return self._parts.fail(detail)

    # ---- rolling

    def roll_if_due(self, wall_ms: int) -> RollReason | None:
        """For a driver's tick: time passes also when nothing is appended."""
        parts = self._parts
        if parts.active.size and parts.failure is None and wall_ms >= parts.limits.at_ms:
            reason = parts.limits.reason(parts.config, parts.active, 0, self.end_offset, wall_ms)
            if reason is not None:
                self.roll(reason)
            return reason
        return None

    def roll(self, reason: RollReason) -> None:
        """Close the active segment and begin another at the end."""
        self._parts.roll(reason, self.end_offset)

    # ---- reading

    def read(self, offset: int, max_bytes: int, upto: int) -> Buffer | Rejected:
        """Whole batches from the one that holds `offset` on, all below `upto`, checked (S1): at most `max_bytes`, but
        the first batch whole (KIP-74). Empty at `upto` and at the end. Raises LogCorrupt; never serves damage (S26)."""
        refused = self._out_of_range(offset)
        if refused is not None:
            return refused
        upto = min(upto, self.end_offset)
        if offset >= upto:
            return b""
        return self._reader.read(offset, max_bytes, upto, self._parts.config.index_interval_bytes)

    def read_or_lend(self, offset: int, max_bytes: int, upto: int) -> Buffer | Stored | Rejected:
        """As `read`. What is large and was checked before may be lent instead: it stays in the file until it leaves."""
        refused = self._out_of_range(offset)
        if refused is not None:
            return refused
        upto = min(upto, self.end_offset)
        if offset >= upto:
            return b""
        return self._reader.read_or_lend(offset, max_bytes, upto, self._parts.config.index_interval_bytes)

    def _out_of_range(self, offset: int) -> Rejected | None:
        start, end = self.start_offset, self.end_offset
        if start <= offset <= end:
            return None
        return Rejected(ErrorKind.OFFSET_OUT_OF_RANGE, f"offset {offset} is not in [{start}, {end}]")

    @property
    def generation(self) -> int:
        """What was read in another generation may be there no more: the log was cut or compacted since."""
        return self._reader.generation

    def offset_for_time(self, timestamp: int, upto: int) -> FoundOffset | None:
        """The first record below `upto` with a timestamp at or above: exact, at the cost of opening one batch."""
        upto, interval = min(upto, self.end_offset), self._parts.config.index_interval_bytes
        return self._reader.first_at_time(timestamp, self.start_offset, upto, interval)

    def max_timestamp_offset(self, upto: int) -> FoundOffset | None:
        """The first record below `upto` that has the highest timestamp of all below `upto`."""
        upto, interval = min(upto, self.end_offset), self._parts.config.index_interval_bytes
        return self._reader.latest_in_time(self.start_offset, upto, interval)

    def scrub(self, offset: int, max_bytes: int) -> int:
        """S22: check about `max_bytes` of what is durable, from `offset` on. Returns where to go on, or raises
        LogCorrupt. The driver chooses the rate."""
        offset = max(offset, self.start_offset)
        if offset >= self.durable_end:
            return self.start_offset
        return self._reader.verify(
            offset, max_bytes, self.durable_end, self._parts.config.index_interval_bytes
        )

    # ---- making it durable

    @property
    def durable_end(self) -> int:
        """Every batch below was synced."""
        return self._flushes.durable_end

    def begin_flush(self) -> Flush | None:
        """What to sync so that everything appended so far is durable; None: nothing, or a flush is under way."""
        parts = self._parts
        return None if parts.failure is not None else self._flushes.begin(parts.active, self.end_offset)

    def flush_done(self, flush: Flush) -> None:
        """Every file of `flush` was synced."""
        self._flushes.end(flush, synced=True)

    def flush_failed(self, flush: Flush, error: OSError) -> None:
        """S7: a failed sync is final. Syncing again would report success for data that is gone."""
        self._flushes.end(flush, synced=False)
        self.fail(f"a sync failed: {error}")

    def sync(self) -> None:
        """Flush and wait: for tools, tests and a clean stop. A driver flushes through a pool instead."""
        flush = self.begin_flush()
        if flush is not None:
            for file in flush.files:
                file.sync()
            self.flush_done(flush)

    # ---- small files

    @property
    def checkpointed(self) -> LogState:
        """What is on disk: the recovery point and high watermark a restart would begin with."""
        return self._files.state

    def begin_checkpoint(self, high_watermark: int | None = None) -> Checkpoint | None:
        """What to write so that the next start has little to do; None: nothing new, or one is under way. The log goes
        on in the meantime, until `checkpoint_done` or `checkpoint_failed`."""
        if self.is_unwritten:
            return None
        self._parts.save_progress(self.end_offset)
        return self._files.begin(self._parts.next_state(self.start_offset, high_watermark))

    def checkpoint_done(self, checkpoint: Checkpoint) -> None:
        self._files.end(checkpoint, written=True)

    def checkpoint_failed(self, checkpoint: Checkpoint, error: OSError) -> None:
        """Losing a checkpoint only makes the next start slower; a full disk must not stop the log (S15)."""
        self._files.end(checkpoint, written=False)
        if error.errno not in FULL_DISK:
            self.fail(f"a checkpoint failed: {error}")

    def checkpoint(self, high_watermark: int | None = None) -> None:
        """Begin, write and finish at once."""
        self._parts.checkpoint(self.start_offset, high_watermark)

    # ---- making it shorter

    def advance_start(self, offset: int, reason: StartReason) -> bool:
        """Move the first offset up. In memory: the next checkpoint makes it durable, the next retention pass frees
        the space. False when the log started there or later already."""
        offset = min(offset, self.end_offset)
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.start_reason = reason
        self._parts.derived.aborted.drop_before(offset)
        return True

    def delete_records(self, offset: int) -> int | Rejected:
        """DeleteRecords: forget everything below `offset` (at most the high watermark: the caller's check), for good.
        Returns the new start."""
        if offset > self.end_offset or offset < 0:
            return Rejected(ErrorKind.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond {self.end_offset}")
        if self._parts.failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self._parts.failure)
        has_moved = self.advance_start(offset, StartReason.DELETE_RECORDS)
        # Also when it is asked again after a full disk: only what is written is for good.
        if has_moved or self._files.state.log_start < min(offset, self.start_offset):
            try:
                self.checkpoint()
            except OSError as error:
                return self._parts.refuse(error, "the log start could not be written")
        return self.start_offset

    def apply_retention(self, wall_ms: int, now_ms: int, upto: int) -> RetentionReport:
        """One pass: drop the oldest segments that are expired, too many, or below the start; none at or above `upto`
        (the high watermark), none of an open transaction (R52)."""
        start = self.start_offset
        first_base = self._retention.first_kept(wall_ms, now_ms, start, self.end_offset, upto)
        if first_base is not None:
            self.advance_start(first_base, StartReason.RETENTION)
            gone = self._retention.drop_before(first_base, self.start_offset)
            if gone:
                return RetentionReport(len(gone), sum(segment.size for segment in gone), self.start_offset)
        return RetentionReport(0, 0, start)

    @property
    def is_untouched(self) -> bool:
        """There is nothing in it that could be too old: no batch, no producer, no file that waits to be unlinked."""
        parts = self._parts
        return (
            self.start_offset == self.end_offset
            and not parts.active.size
            and len(parts.segments) == 1
            and not parts.segments.has_trash
            and not len(self.producers)
        )

    def pass_time(self, wall_ms: int, now_ms: int) -> None:
        """Where there is nothing to delete, time is still believed only as fast as it passes (S23)."""
        self._parts.believed_ms(wall_ms, now_ms)

    def purge_deleted(self, now_ms: int) -> int:
        """S20: unlink files that were renamed `.deleted` long enough ago. Returns how many."""
        return self._parts.segments.purge(now_ms, self._parts.config.file_delete_delay_ms)

    def expire_producers(self, wall_ms: int, now_ms: int, expiration_ms: int) -> int:
        """R40: forget idle producers, on the clock that retention believes."""
        return self.producers.expire(self._parts.believed_ms(wall_ms, now_ms), expiration_ms)

    def truncate(self, offset: int) -> int:
        """R23: remove every batch that reaches `offset` or beyond, with all that was derived from it. Returns the new
        end, which is lower than `offset` when that was in the middle of a batch. An OSError is final (S7), unless `failed` is None:
        then the disk was too full to begin (S15)."""
        if self._parts.failure is not None:
            raise OSError(EIO, self._parts.failure)
        if offset >= self.end_offset:
            return self.end_offset
        if offset < self.start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        start, self.end_offset = self._truncation.cut(offset, self.start_offset)
        if start != self.start_offset:
            self.start_offset, self.start_reason = start, StartReason.RESTART
        return self.end_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """R26: forget everything and begin anew at `offset`, the leader's start. Of an OSError the same is true as in `truncate`."""
        if self._parts.failure is not None:
            raise OSError(EIO, self._parts.failure)
        self._truncation.restart(offset)
        self.start_offset, self.start_reason, self.end_offset = offset, StartReason.RESTART, offset

    def begin_compaction(
        self, wall_ms: int, now_ms: int, upto: int, *, forced: bool = False
    ) -> Compaction | None:
        """A pass worth making, None when there is none. Nothing at or above `upto` (the high watermark), of an open
        transaction, unsynced, or in the active segment is touched. Drive it with `step`, in a thread if you like; then
        `finish_compaction` or `abandon`. One at a time."""
        start, end = self.start_offset, self.end_offset
        return self._compactor.begin(wall_ms, now_ms, start, end, upto, forced=forced)

    def finish_compaction(self, done: Compaction) -> CompactionReport:
        """Swap the result in, or throw it away when the segments changed meanwhile."""
        return self._compactor.finish(done, self.start_offset)

    def compact(self, wall_ms: int, now_ms: int, upto: int, *, forced: bool = False) -> int:
        """All passes at once: for tools and tests. Returns how many were made."""
        passes = 0
        while (run := self.begin_compaction(wall_ms, now_ms, upto, forced=forced and not passes)) is not None:
            run.run()
            passes += 1
            if not self.finish_compaction(run).unfinished:
                break
        return passes

    # ---- closing

    def close(self, clean: bool = True, high_watermark: int | None = None) -> None:
        """`clean`: everything is synced and the next start reads no batch at all. A failed log is never clean."""
        parts = self._parts
        if clean and parts.failure is None and not self.is_unwritten:
            self.sync()
            parts.write_caches(parts.active, self.end_offset)
            self.checkpoint(high_watermark)
        self._flushes.close(parts.active)
        for segment in parts.segments:
            parts.cache.drop(segment.path)
        parts.failure = parts.failure or "the log is closed"
