"""Machine: the growing side of a partition's log: appends, reads, flushes, rolls, checkpoints.

Synchronous and single-writer: every method runs to its end without giving the loop away, so "check epoch, assign
offset, write" can not be interleaved (R25). What blocks on the disk is handed to the driver as a value: `begin_flush`
and `begin_checkpoint` say what to sync or write, `flush_done` and `checkpoint_done` take note that it happened.

Invariants
- start_offset <= durable_end <= end_offset, except that start_offset may pass durable_end when records are deleted;
- every batch below durable_end was synced; the recovery point on disk is never above durable_end (S6);
- epochs, producers and aborted transactions are what the batches in the log make them (R40).

How a roll keeps S19 without blocking the loop. S19 wants the old file synced before the new one takes data, so that a
crash can not lose the end of the old and keep the new. Syncing here would stop the loop for as long as the disk takes.
Instead the old file goes to the front of the next flush, `durable_end` (and so every acknowledgement and the recovery
point) waits for both, and recovery believes a segment only when the one before it is complete: a gap between two
segments beyond the recovery point is where the log ends. What the gap cost was never acknowledged.
"""

from __future__ import annotations

import errno
from typing import Any, Self

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, FileSystem
from headrace.core.stored import Stored
from headrace.log import recovery
from headrace.log.aborted import AbortedIndex, AbortedTxn
from headrace.log.checkpoints import LogState
from headrace.log.config import LogConfig
from headrace.log.epochs import LeaderEpochs
from headrace.log.flushing import FlushQueue
from headrace.log.index import MAX_RELATIVE_OFFSET, encode_index
from headrace.log.names import INDEX, LOG, log_path
from headrace.log.producers import ProducerTable
from headrace.log.reader import LogReader
from headrace.log.replicated import check_replicated
from headrace.log.results import (
    Accept,
    AppendResult,
    Checkpoint,
    Duplicate,
    Flush,
    FoundOffset,
    LoadReport,
    LogCorrupt,
    RollReason,
    StartReason,
)
from headrace.log.retention import TrustedClock
from headrace.log.rolling import RollLimits
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.snapshots import drop_snapshot, replace_cache, write_snapshot
from headrace.log.state_files import StateFiles
from headrace.records.batch import (
    BatchHeader,
    stamp,
    stamp_log_append_time,
)

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# The Python-level constructor of a NamedTuple costs more than the tuple itself.
_new: Any = tuple.__new__


class GrowingLog:
    __slots__ = (
        "_active",
        "_cache",
        "_cached_bytes",
        "_clock",
        "_compacted_to",
        "_compaction_unfinished",
        "_config",
        "_derived",
        "_extra_snapshot",
        "_failure",
        "_files",
        "_flushes",
        "_fs",
        "_limits",
        "_reader",
        "_segments",
        "_sparse",
        "directory",
        "end_offset",
        "epochs",
        "producers",
        "roll_reason",
        "start_offset",
        "start_reason",
        "topic_id",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        config: LogConfig,
        topic_id: bytes,
        cache: SegmentCache,
        loaded: recovery.RecoveredLog,
    ) -> None:
        """Use `open`."""
        self._fs = fs
        self.directory = directory
        self.topic_id = topic_id
        self._cache = cache
        self._segments = loaded.segments
        self._active = loaded.segments.active
        self._derived = loaded.derived
        self.epochs: LeaderEpochs = loaded.derived.epochs
        self.producers: ProducerTable = loaded.derived.producers
        self._files = StateFiles(fs, directory, loaded.state, self.epochs, are_there=not loaded.is_new)
        self._reader = LogReader(self._segments, cache, self.epochs)
        self._clock = TrustedClock(loaded.state.clock_ms)
        self._compacted_to = loaded.state.compacted_to
        self._compaction_unfinished = False
        self._cached_bytes = 0
        """How much of the active segment the index describes that was last written."""
        self._extra_snapshot: int | None = None
        """The one snapshot that is not at the beginning of a segment."""
        self._sparse = bool(loaded.state.sparse)
        self.start_offset = loaded.state.log_start
        self.start_reason: StartReason | None = None
        """Why the start moved last."""
        self.roll_reason: RollReason | None = None
        """Why the active segment began."""
        self.end_offset = loaded.end_offset
        self._failure: str | None = None
        self._flushes = FlushQueue(cache, loaded.end_offset)
        self._config = config
        self._limits = RollLimits()
        self._limits.set(self._config, self._active)

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
    ) -> tuple[Self, LoadReport]:
        """Open or create the log in `directory`. Raises LogCorrupt or WrongTopic, changing nothing that matters.

        `cache` is shared by the logs of a broker. `repair` cuts the log at damage instead of refusing, moving what it
        cuts into quarantine (S4, S12). `refuse_holes`: see recovery.
        """
        shared = cache if cache is not None else SegmentCache(fs)
        loaded = recovery.load(fs, directory, config, topic_id, wall_ms, shared, repair, refuse_holes)
        log = cls(fs, directory, config, topic_id, shared, loaded)
        return log, loaded.report

    # ---- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._limits.set(self._config, self._active)

    @property
    def size_bytes(self) -> int:
        return self._segments.closed_bytes + self._active.size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def failed(self) -> str | None:
        """Why nothing may be written here any more (S7), None while all is well."""
        return self._failure

    @property
    def aborted(self) -> AbortedIndex:
        return self._derived.aborted

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction began."""
        return self.producers.first_open_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """R48: consumers at read_committed may read up to here."""
        return self.producers.last_stable_offset(high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """R48: for a read_committed fetch that returns [start, end)."""
        return self._derived.aborted.overlapping(start, end)

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
        if self._failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self._failure)
        active, limits = self._active, self._limits
        base_offset = self.end_offset
        last_offset = base_offset + header[6]
        if (
            active.size + header[1] + 12 > limits.most_bytes
            or wall_ms >= limits.at_ms
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        ):
            refused = self._make_room(header[1] + 12, last_offset, wall_ms)
            if refused is not None:
                return refused
            active = self._active
        epochs = self.epochs
        if leader_epoch != epochs.latest:
            refused = self._enter_epoch(leader_epoch, base_offset)
            if refused is not None:
                return refused
        append_time = -1
        if self._config.log_append_time:
            header = stamp_log_append_time(batch, 0, header, wall_ms)
            append_time = wall_ms
        stamp(batch, 0, base_offset, leader_epoch)
        assert active.file is not None
        try:
            active.file.append((batch,))
        except OSError as error:
            return self._write_failed(error)
        active.note(header, base_offset, self._config.index_interval_bytes)
        active.appended_ms = wall_ms
        if active.created_ms == 0:
            active.created_ms = wall_ms
            self._limits.set(self._config, self._active)
        if header[9] >= 0:
            self._derived.absorb(header, batch, 0, base_offset, wall_ms)
        self.end_offset = last_offset + 1
        appended: AppendResult = _new(AppendResult, (base_offset, last_offset, append_time))
        return appended

    def append_replicated(
        self, data: Buffer, wall_ms: int, *, allow_gaps: bool | None = None
    ) -> AppendResult | Rejected:
        """R11: the leader's own bytes at the leader's own offsets. One write per segment they go to.

        A batch that is cut short ends the data. `allow_gaps` (by default: what a compacted topic does) accepts
        offsets that the leader's compaction left out; offsets never go back.
        """
        if self._failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self._failure)
        gaps = self._config.compact if allow_gaps is None else allow_gaps
        first_offset = self.end_offset
        # An epoch that we led and never wrote in began nothing: what comes here may be of an older one (R10, R11).
        is_empty = self.epochs.latest >= 0 and self.epochs.entries[-1].start_offset >= first_offset
        if is_empty or self._files.are_epochs_doubtful:
            self.epochs.truncate_end(first_offset)
            try:
                self._files.write_epochs()
            except OSError as error:
                return self._epochs_not_written(error)
        checked = check_replicated(data, first_offset, self.epochs.latest, gaps=gaps)
        if isinstance(checked, Rejected):
            return checked
        run_start = run_end = 0
        run: list[tuple[int, BatchHeader]] = []
        for at, header in checked:
            active, limits, size = self._active, self._limits, run_end - run_start
            if (
                active.size + size + header.size > limits.most_bytes
                or wall_ms >= limits.at_ms
                or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            ):
                refused = self._write_run(data, run, run_start, run_end, wall_ms)
                if refused is None:
                    refused = self._make_room(header.size, header.last_offset, wall_ms, header.base_offset)
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
        active = self._active
        assert active.file is not None
        for _, header in run:
            if header.leader_epoch != self.epochs.latest:
                refused = self._enter_epoch(header.leader_epoch, header.base_offset)
                if refused is not None:
                    return refused
        try:
            active.file.append((memoryview(data)[start:end],))
        except OSError as error:
            return self._write_failed(error)
        interval = self._config.index_interval_bytes
        for at, header in run:
            if header.base_offset != active.next_offset:
                self._sparse = True
            active.note(header, header.base_offset, interval)
            if header.producer_id >= 0:
                self._derived.absorb(header, data, at, header.base_offset, wall_ms)
        if active.created_ms == 0:
            active.created_ms = wall_ms
            self._limits.set(self._config, self._active)
        active.appended_ms = wall_ms
        self.end_offset = active.next_offset
        return None

    def _enter_epoch(self, epoch: int, start_offset: int) -> Rejected | None:
        """The first batch of an epoch. It is on disk in the epoch file before any batch carries it, which lets
        recovery and reads hold every batch against that file (S2)."""
        if epoch < self.epochs.latest:
            return Rejected(ErrorKind.FENCED_LEADER_EPOCH, f"leader epoch {epoch} after {self.epochs.latest}")
        before = self.epochs.entries
        self.epochs.assign(epoch, start_offset)
        try:
            self._files.write_epochs()
        except OSError as error:
            self.epochs.restore(before)
            return self._epochs_not_written(error)
        return None

    def _epochs_not_written(self, error: OSError) -> Rejected:
        """S15: on a full disk the log stays usable. Which epochs the file has is in doubt now, so it is written again before
        anything else is appended."""
        if error.errno in FULL_DISK:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"the disk is full: {error}")
        return self.fail(f"the epoch file could not be written: {error}")

    def _write_failed(self, error: OSError) -> Rejected:
        """S15: a full disk leaves the file as it was (the port's promise), and the log usable. The rest is final (S7)."""
        active = self._active
        assert active.file is not None
        if error.errno in FULL_DISK and active.file.size == active.size:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"the disk is full: {error}")
        return self.fail(f"an append failed: {error}")

    def fail(self, detail: str) -> Rejected:
        """S7: nothing is written here any more. Only opening the log anew, with its CRC scan, ends this."""
        if self._failure is None:
            self._failure = detail
        return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self._failure)

    # ---- rolling

    def roll_if_due(self, wall_ms: int) -> RollReason | None:
        """For a driver's tick: time passes also when nothing is appended."""
        if self._active.size and self._failure is None and wall_ms >= self._limits.at_ms:
            reason = self._limits.reason(self._config, self._active, 0, self.end_offset, wall_ms)
            if reason is not None:
                self.roll(reason)
            return reason
        return None

    def roll(self, reason: RollReason, base_offset: int | None = None) -> None:
        """Close the active segment and begin another at the end. An empty one stays: there is nothing to close."""
        old = self._active
        base = self.end_offset if base_offset is None else base_offset
        if old.size == 0 and old.base_offset == base:
            return
        self._begin_segment(base)
        self.roll_reason = reason
        self._flushes.rolled(old)
        self._write_caches(old, base)

    def _begin_segment(self, base_offset: int) -> None:
        segment = Segment(log_path(self.directory, base_offset), base_offset)
        file = self._fs.open(segment.path, create=True)
        try:
            if file.size:
                raise LogCorrupt(segment.path, 0, base_offset, "a new segment's file exists and is not empty")
            self._fs.sync_dir(self.directory)
        except BaseException:
            file.close()
            raise
        segment.file = file
        self._segments.add(segment)
        self._active = segment
        self._cached_bytes = 0
        self._limits.set(self._config, self._active)

    def _write_caches(self, segment: Segment, snapshot_offset: int | None = None) -> None:
        """The index of a segment, and the producers as they are at `snapshot_offset`. From here on a start does not read all batches,
        so what it would learn from them of epochs is written down."""
        try:
            if not self._files.has_epochs_file:
                self._files.write_epochs()
            if segment.index is not None:
                aborted = self._derived.aborted.between(segment.base_offset, segment.next_offset)
                parts = encode_index(segment.summary(), aborted, segment.index)
                replace_cache(self._fs, segment.path.removesuffix(LOG) + INDEX, parts)
            if snapshot_offset is not None:
                write_snapshot(self._fs, self.directory, snapshot_offset, self.producers)
        except OSError:
            pass  # both only save work at the next start; a full disk shows at the next append

    def _make_room(
        self, size: int, last_offset: int, wall_ms: int, base_offset: int | None = None
    ) -> Rejected | None:
        """The slow side of the append path: is it time for another segment?"""
        if size > self._config.segment_bytes:
            return Rejected(
                ErrorKind.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes is larger than a segment"
            )
        reason = self._limits.reason(self._config, self._active, size, last_offset, wall_ms)
        if reason is None:
            return None
        try:
            self.roll(reason, base_offset)
        except OSError as error:
            if error.errno in FULL_DISK or error.errno in (errno.EMFILE, errno.ENFILE):
                return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"no new segment: {error}")
            return self.fail(f"no new segment: {error}")
        return None

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
        return self._reader.read(offset, max_bytes, upto, self._config.index_interval_bytes)

    def read_or_lend(self, offset: int, max_bytes: int, upto: int) -> Buffer | Stored | Rejected:
        """As `read`. What is large and was checked before may be lent instead: it stays in the file until it leaves."""
        refused = self._out_of_range(offset)
        if refused is not None:
            return refused
        upto = min(upto, self.end_offset)
        if offset >= upto:
            return b""
        return self._reader.read_or_lend(offset, max_bytes, upto, self._config.index_interval_bytes)

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
        upto, interval = min(upto, self.end_offset), self._config.index_interval_bytes
        return self._reader.first_at_time(timestamp, self.start_offset, upto, interval)

    def max_timestamp_offset(self, upto: int) -> FoundOffset | None:
        """The first record below `upto` that has the highest timestamp of all below `upto`."""
        upto, interval = min(upto, self.end_offset), self._config.index_interval_bytes
        return self._reader.latest_in_time(self.start_offset, upto, interval)

    def scrub(self, offset: int, max_bytes: int) -> int:
        """S22: check about `max_bytes` of what is durable, from `offset` on. Returns where to go on, or raises
        LogCorrupt. The driver chooses the rate."""
        offset = max(offset, self.start_offset)
        if offset >= self.durable_end:
            return self.start_offset
        return self._reader.verify(offset, max_bytes, self.durable_end, self._config.index_interval_bytes)

    # ---- making it durable

    @property
    def durable_end(self) -> int:
        """Every batch below was synced."""
        return self._flushes.durable_end

    def begin_flush(self) -> Flush | None:
        """What to sync so that everything appended so far is durable; None: nothing, or a flush is under way."""
        return None if self._failure is not None else self._flushes.begin(self._active, self.end_offset)

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
        self._save_progress()
        return self._files.begin(self._next_state(high_watermark))

    def _save_progress(self) -> None:
        """S25: write the caches of a long active segment now and then, so that a crash costs reading only its end.
        Like all caches they are believed only up to a recovery point that has passed them."""
        active = self._active
        if active.size - self._cached_bytes < self._config.cache_interval_bytes:
            return
        self._cached_bytes = active.size
        self._write_caches(active, self.end_offset)
        older, self._extra_snapshot = self._extra_snapshot, self.end_offset
        if older is not None:
            drop_snapshot(self._fs, self.directory, older)

    def checkpoint_done(self, checkpoint: Checkpoint) -> None:
        self._files.end(checkpoint, written=True)

    def checkpoint_failed(self, checkpoint: Checkpoint, error: OSError) -> None:
        """Losing a checkpoint only makes the next start slower; a full disk must not stop the log (S15)."""
        self._files.end(checkpoint, written=False)
        if error.errno not in FULL_DISK:
            self.fail(f"a checkpoint failed: {error}")

    def checkpoint(self, high_watermark: int | None = None) -> None:
        """Begin, write and finish at once."""
        self._files.write(self._next_state(high_watermark))

    def _next_state(self, high_watermark: int | None = None) -> LogState:
        state = self._files.state
        return state._replace(
            recovery_point=max(self.durable_end, self.start_offset),
            log_start=self.start_offset,
            high_watermark=state.high_watermark if high_watermark is None else high_watermark,
            compacted_to=self._compacted_to,
            sparse=int(self._sparse),
            clock_ms=self._clock.highest_ms,
            epochs_kept=int(self._files.has_epochs_file),
        )

    # ---- closing

    def close(self, clean: bool = True, high_watermark: int | None = None) -> None:
        """`clean`: everything is synced and the next start reads no batch at all. A failed log is never clean."""
        if clean and self._failure is None and not self.is_unwritten:
            self.sync()
            self._write_caches(self._active, self.end_offset)
            self.checkpoint(high_watermark)
        self._flushes.close(self._active)
        for segment in self._segments:
            self._cache.drop(segment.path)
        self._failure = self._failure or "the log is closed"
