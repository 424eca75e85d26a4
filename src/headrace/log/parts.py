"""Machine: what an open log consists of, and the steps that all operations on it share: rolling, caches, the state file, the end of service.

`PartitionLog` appends and reads; `Truncation`, `Retention` and `Compactor` make it shorter. Each of them is given these parts. Where the
log starts and ends is `PartitionLog`'s alone: the others are told it, and say where it is afterwards.

Invariant: `active` is the last segment, `limits` are those of `active` under `config`, and once `failure` is set nothing is written.

How a roll keeps S19 without blocking the loop. S19 wants the old file synced before the new one takes data, so that a
crash can not lose the end of the old and keep the new. Syncing here would stop the loop for as long as the disk takes.
Instead the old file goes to the front of the next flush, `durable_end` (and so every acknowledgement and the recovery
point) waits for both, and recovery believes a segment only when the one before it is complete: a gap between two
segments beyond the recovery point is where the log ends. What the gap cost was never acknowledged.
"""

from __future__ import annotations

import errno

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import FileSystem
from headrace.log.checkpoints import LogState
from headrace.log.config import LogConfig
from headrace.log.flushing import FlushQueue
from headrace.log.index import encode_index
from headrace.log.names import INDEX, LOG, log_path
from headrace.log.reader import LogReader
from headrace.log.recovery import RecoveredLog
from headrace.log.results import LogCorrupt, RollReason
from headrace.log.rolling import RollLimits
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.snapshots import drop_snapshot, replace_cache, write_snapshot
from headrace.log.state_files import StateFiles
from headrace.log.trusted_clock import TrustedClock, step_ms

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LogParts:
    __slots__ = (
        "_cached_bytes",
        "_extra_snapshot",
        "active",
        "cache",
        "clock",
        "compacted_to",
        "config",
        "derived",
        "directory",
        "failure",
        "files",
        "flushes",
        "fs",
        "limits",
        "reader",
        "roll_reason",
        "segments",
        "sparse",
    )

    def __init__(
        self, fs: FileSystem, directory: str, config: LogConfig, cache: SegmentCache, loaded: RecoveredLog
    ) -> None:
        state, epochs = loaded.state, loaded.derived.epochs
        self.fs = fs
        self.directory = directory
        self.config = config
        self.cache = cache
        self.segments = loaded.segments
        self.active = loaded.segments.active
        self.derived = loaded.derived
        self.files = StateFiles(fs, directory, state, epochs, are_there=not loaded.is_new)
        self.reader = LogReader(self.segments, cache, epochs)
        self.flushes = FlushQueue(cache, loaded.end_offset)
        self.clock = TrustedClock(state.clock_ms)
        self.compacted_to = state.compacted_to
        self.sparse = bool(state.sparse)
        """Offsets were left out somewhere."""
        self.failure: str | None = None
        """Why nothing may be written here any more (S7), None while all is well."""
        self.roll_reason: RollReason | None = None
        """Why the active segment began."""
        self._cached_bytes = 0
        """How much of the active segment the index describes that was last written."""
        self._extra_snapshot: int | None = None
        """The one snapshot that is not at the beginning of a segment."""
        self.limits = RollLimits()
        self.limits.set(config, self.active)

    def fail(self, detail: str) -> Rejected:
        """S7: nothing is written here any more. Only opening the log anew, with its CRC scan, ends this."""
        if self.failure is None:
            self.failure = detail
        return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self.failure)

    def refuse(self, error: OSError, failing: str) -> Rejected:
        """S15: on a full disk the log stays usable. The rest is final (S7)."""
        if error.errno in FULL_DISK:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"the disk is full: {error}")
        return self.fail(f"{failing}: {error}")

    def believed_ms(self, wall_ms: int, now_ms: int) -> int:
        """Time is believed only as fast as it passes (S23)."""
        return self.clock.believe(wall_ms, now_ms, step_ms(self.config))

    def settled(self, upto: int) -> int:
        """R52: below the high watermark `upto`, and of no open transaction."""
        unstable = self.derived.producers.first_open_offset
        return upto if unstable is None else min(upto, unstable)

    # ---- epochs

    def enter_epoch(self, epoch: int, start_offset: int) -> Rejected | None:
        """The first batch of an epoch. It is on disk in the epoch file before any batch carries it, which lets
        recovery and reads hold every batch against that file (S2)."""
        epochs = self.derived.epochs
        if epoch < epochs.latest:
            return Rejected(ErrorKind.FENCED_LEADER_EPOCH, f"leader epoch {epoch} after {epochs.latest}")
        before = epochs.entries
        epochs.assign(epoch, start_offset)
        refused = self.write_epochs()
        if refused is not None:
            epochs.restore(before)
        return refused

    def write_epochs(self) -> Rejected | None:
        """When it fails, which epochs the file has is in doubt, so it is written again before anything else is appended."""
        try:
            self.files.write_epochs()
        except OSError as error:
            return self.refuse(error, "the epoch file could not be written")
        return None

    # ---- rolling

    def roll(self, reason: RollReason, base_offset: int) -> None:
        """Close the active segment and begin another. An empty one stays: there is nothing to close."""
        old = self.active
        if old.size == 0 and old.base_offset == base_offset:
            return
        self.begin_segment(base_offset)
        self.roll_reason = reason
        self.flushes.rolled(old)
        self.write_caches(old, base_offset)

    def begin_segment(self, base_offset: int) -> None:
        segment = Segment(log_path(self.directory, base_offset), base_offset)
        file = self.fs.open(segment.path, create=True)
        try:
            if file.size:
                raise LogCorrupt(segment.path, 0, base_offset, "a new segment's file exists and is not empty")
            self.fs.sync_dir(self.directory)
        except BaseException:
            file.close()
            raise
        segment.file = file
        self.segments.add(segment)
        self.active = segment
        self._cached_bytes = 0
        self.limits.set(self.config, segment)

    def make_room(self, size: int, last_offset: int, wall_ms: int, base_offset: int) -> Rejected | None:
        """The slow side of the append path: is it time for another segment?"""
        if size > self.config.segment_bytes:
            return Rejected(
                ErrorKind.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes is larger than a segment"
            )
        reason = self.limits.reason(self.config, self.active, size, last_offset, wall_ms)
        if reason is None:
            return None
        try:
            self.roll(reason, base_offset)
        except OSError as error:
            if error.errno in FULL_DISK or error.errno in (errno.EMFILE, errno.ENFILE):
                return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"no new segment: {error}")
            return self.fail(f"no new segment: {error}")
        return None

    # ---- caches and small files

    def write_caches(self, segment: Segment, snapshot_offset: int | None = None) -> None:
        """The index of a segment, and the producers as they are at `snapshot_offset`. From here on a start does not read all batches,
        so what it would learn from them of epochs is written down."""
        derived = self.derived
        try:
            if not self.files.has_epochs_file:
                self.files.write_epochs()
            if segment.index is not None:
                aborted = derived.aborted.between(segment.base_offset, segment.next_offset)
                parts = encode_index(segment.summary(), aborted, segment.index)
                replace_cache(self.fs, segment.path.removesuffix(LOG) + INDEX, parts)
            if snapshot_offset is not None:
                write_snapshot(self.fs, self.directory, snapshot_offset, derived.producers)
        except OSError:
            pass  # both only save work at the next start; a full disk shows at the next append

    def save_progress(self, end_offset: int) -> None:
        """S25: write the caches of a long active segment now and then, so that a crash costs reading only its end.
        Like all caches they are believed only up to a recovery point that has passed them."""
        active = self.active
        if active.size - self._cached_bytes < self.config.cache_interval_bytes:
            return
        self._cached_bytes = active.size
        self.write_caches(active, end_offset)
        older, self._extra_snapshot = self._extra_snapshot, end_offset
        if older is not None:
            drop_snapshot(self.fs, self.directory, older)

    def next_state(self, start_offset: int, high_watermark: int | None = None) -> LogState:
        state = self.files.state
        return state._replace(
            recovery_point=max(self.flushes.durable_end, start_offset),
            log_start=start_offset,
            high_watermark=state.high_watermark if high_watermark is None else high_watermark,
            compacted_to=self.compacted_to,
            sparse=int(self.sparse),
            clock_ms=self.clock.highest_ms,
            epochs_kept=int(self.files.has_epochs_file),
        )

    def checkpoint(self, start_offset: int, high_watermark: int | None = None) -> None:
        """Begin, write and finish at once."""
        self.files.write(self.next_state(start_offset, high_watermark))

    def settle(self) -> None:
        """The end of the log is another one, and what it knew of itself is what the state file says."""
        self.compacted_to = self.files.state.compacted_to
        self.sparse = bool(self.files.state.sparse)
        self.reader.forget()
        self.limits.set(self.config, self.active)
        self._cached_bytes = 0
