"""Machine: one partition's log: what GrowingLog does, and everything that makes a log shorter.

    truncation   from the end, when replicas disagree (R23, R26)
    deletion     from the beginning: retention, DeleteRecords (S20, S23)
    compaction   from within (S21)

Invariant: after each of them, and after a crash at any point in each of them, reads find a log that existed before or
the one that should be there now, and all that is derived from it fits.
"""

from __future__ import annotations

from errno import EIO

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer
from headrace.log.cleanable import find_cleanable
from headrace.log.compaction import Compaction, CompactionInput, CompactionReport, Group, LastBatch
from headrace.log.growing_log import FULL_DISK, GrowingLog
from headrace.log.results import AppendResult, RollReason, StartReason
from headrace.log.retention import RetentionReport, deletable_count, is_expired, step_ms
from headrace.log.snapshots import drop_snapshot, ensure_snapshot
from headrace.log.swap import commit_swap, complete_swap
from headrace.log.truncation import Cutter
from headrace.records.batch import HEADER_BYTES, CorruptBatch, crc_matches, read_header


class PartitionLog(GrowingLog):
    __slots__ = ()

    # ---- the beginning of the log

    def advance_start(self, offset: int, reason: StartReason) -> bool:
        """Move the first offset up. In memory: the next checkpoint makes it durable, the next retention pass frees
        the space. False when the log started there or later already."""
        offset = min(offset, self.end_offset)
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.start_reason = reason
        self._derived.aborted.drop_before(offset)
        return True

    def delete_records(self, offset: int) -> int | Rejected:
        """DeleteRecords: forget everything below `offset` (at most the high watermark: the caller's check), for good.
        Returns the new start."""
        if offset > self.end_offset or offset < 0:
            return Rejected(ErrorKind.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond {self.end_offset}")
        if self._failure is not None:
            return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, self._failure)
        # Also when it is asked again after a full disk: only what is written is for good.
        if self.advance_start(offset, StartReason.DELETE_RECORDS) or self._files.state.log_start < min(
            offset, self.start_offset
        ):
            try:
                self.checkpoint()
            except OSError as error:
                if error.errno in FULL_DISK:
                    return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, f"the disk is full: {error}")
                return self.fail(f"the log start could not be written: {error}")
        return self.start_offset

    def apply_retention(self, wall_ms: int, now_ms: int, upto: int) -> RetentionReport:
        """One pass: drop the oldest segments that are expired, too many, or below the start; none at or above `upto`
        (the high watermark), none of an open transaction (R52)."""
        nothing = RetentionReport(0, 0, self.start_offset)
        believed_ms = self._believed_ms(wall_ms, now_ms)
        if self._failure is not None:
            return nothing
        active, config = self._active, self._config
        closed, limit = self._segments.closed, self._settled(upto)
        count = deletable_count(closed, active, config, believed_ms, self.start_offset, limit)
        try:
            if active.size and config.delete and is_expired(active, config, believed_ms):
                self.roll(RollReason.RETENTION)
            if not count:
                return nothing
            first_base = self._segments[count].base_offset
            ensure_snapshot(self._fs, self.directory, first_base, self.end_offset, self.producers)
            self.advance_start(first_base, StartReason.RETENTION)
            self._checkpoint_before_deleting(count)
        except OSError as error:
            if error.errno not in FULL_DISK:
                self.fail(f"retention failed: {error}")
            return nothing
        self._reader.forget(only_removed=True)
        gone = self._segments.retire_first(count)
        for segment in gone:
            self._flushes.forget(segment)
        # By the first batch that is left, not by the start: those in front of it in its segment keep their epochs.
        self.epochs.truncate_start(self._segments[0].base_offset)
        return RetentionReport(len(gone), sum(segment.size for segment in gone), self.start_offset)

    def _checkpoint_before_deleting(self, count: int) -> None:
        """S20: where the log starts is on disk before anything goes, so a missing first segment is always damage."""
        try:
            self.checkpoint()
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            # S15: retention has to work on a full disk. The caches of what is about to go make room for one small file.
            self._segments.drop_caches(count)
            self.checkpoint()

    def _settled(self, upto: int) -> int:
        """R52: below the high watermark `upto`, and of no open transaction."""
        unstable = self.first_unstable_offset
        return upto if unstable is None else min(upto, unstable)

    @property
    def is_untouched(self) -> bool:
        """There is nothing in it that could be too old: no batch, no producer, no file that waits to be unlinked."""
        return (
            self.start_offset == self.end_offset
            and not self._active.size
            and len(self._segments) == 1
            and not self._segments.has_trash
            and not len(self.producers)
        )

    def pass_time(self, wall_ms: int, now_ms: int) -> None:
        """Where there is nothing to delete, time is still believed only as fast as it passes (S23)."""
        self._believed_ms(wall_ms, now_ms)

    def _believed_ms(self, wall_ms: int, now_ms: int) -> int:
        return self._clock.believe(wall_ms, now_ms, step_ms(self._config))

    def purge_deleted(self, now_ms: int) -> int:
        """S20: unlink files that were renamed `.deleted` long enough ago. Returns how many."""
        return self._segments.purge(now_ms, self._config.file_delete_delay_ms)

    def expire_producers(self, wall_ms: int, now_ms: int, expiration_ms: int) -> int:
        """R40: forget idle producers, on the clock that retention believes."""
        return self.producers.expire(self._believed_ms(wall_ms, now_ms), expiration_ms)

    # ---- the end of the log

    def truncate(self, offset: int) -> int:
        """R23: remove every batch that reaches `offset` or beyond, with all that was derived from it. Returns the new
        end, which is lower than `offset` when that was in the middle of a batch. An OSError is final (S7), unless `failed` is None:
        then the disk was too full to begin (S15)."""
        if self._failure is not None:
            raise OSError(EIO, self._failure)
        if offset >= self.end_offset:
            return self.end_offset
        if offset < self.start_offset:
            self.truncate_fully_and_start_at(offset)
            return offset
        try:
            cutter = self._cutter()
            end = cutter.boundary(offset)
            if end < self.start_offset:
                # The batch that is cut reaches below the start. It has to come again whole (R11), so the log begins there.
                self.truncate_fully_and_start_at(end)
                return end
            self._lower_state(end)
        except OSError as error:
            if error.errno not in FULL_DISK:
                self.fail(f"a truncation failed: {error}")
            raise
        try:
            cutter.cut(end)
            if self._segments.active.next_offset != end:
                self._begin_segment(
                    end
                )  # in a gap that compaction left: the name of the file keeps the offset
            self._active = self._segments.active
            self._flushes.truncated(end)
            self._derived.aborted.truncate(end)
            self.epochs.truncate_end(end)
            self._write_epochs_if_there_is_room()
            self.producers.take(cutter.rebuild_producers(end))
        except OSError as error:
            self.fail(f"a truncation failed: {error}")
            raise
        self._settle_at(end)
        return end

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """R26: forget everything and begin anew at `offset`, the leader's start. Of an OSError the same is true as in `truncate`."""
        if self._failure is not None:
            raise OSError(EIO, self._failure)
        # First that it restarts and where, then what is gone: a crash on the way ends with an empty log.
        state = self._files.state._replace(
            recovery_point=offset, log_start=offset, high_watermark=offset, compacted_to=0, sparse=0, restarting=1
        )  # fmt: skip
        try:
            self._files.write(state)
        except OSError as error:
            if error.errno not in FULL_DISK:
                self.fail(f"a restart of the log failed: {error}")
            raise
        try:
            self._cutter().cut_all()
            self._begin_segment(offset)
            self._files.write(state._replace(restarting=0))
            self._flushes.restarted(offset)
            self._derived.aborted.clear()
            self.epochs.clear()
            self._write_epochs_if_there_is_room()
            self.producers.clear()
        except OSError as error:
            self.fail(f"a restart of the log failed: {error}")
            raise
        self.start_offset, self.start_reason = offset, StartReason.RESTART
        self._settle_at(offset)

    def append_replicated(
        self, data: Buffer, wall_ms: int, *, allow_gaps: bool | None = None
    ) -> AppendResult | Rejected:
        """R11, see GrowingLog. A leader's log may start in the middle of a batch (DeleteRecords), and so may a replica
        that begins there: it gets the batch whole, and starts where it was told to (as Kafka's followers do)."""
        start = self.start_offset
        if self.end_offset == start and self._failure is None and len(data) >= HEADER_BYTES:
            try:
                header = read_header(data)
            except CorruptBatch as error:
                return Rejected(ErrorKind.CORRUPT_MESSAGE, str(error))
            if header.base_offset < start < header.next_offset and crc_matches(data, 0, header):
                try:
                    self.truncate_fully_and_start_at(header.base_offset)
                except OSError as error:
                    return Rejected(ErrorKind.KAFKA_STORAGE_ERROR, str(error))
        result = super().append_replicated(data, wall_ms, allow_gaps=allow_gaps)
        self.advance_start(start, StartReason.LEADER_START)
        return result

    def _write_epochs_if_there_is_room(self) -> None:
        """On a full disk they are in doubt from here on, and written before anything is appended (S15): the file as it is says too much,
        as after a crash between the cut and this."""
        try:
            self._files.write_epochs()
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise

    def _lower_state(self, offset: int) -> None:
        """Before the log gets shorter: a log that ends below its recovery point would be taken for damaged."""
        state = self._files.state
        lowered = state._replace(
            recovery_point=max(min(state.recovery_point, offset), state.log_start),
            high_watermark=min(state.high_watermark, offset),
            compacted_to=min(self._compacted_to, offset),
            sparse=int(self._sparse),
        )
        self._files.write(lowered)

    def _settle_at(self, end: int) -> None:
        self.end_offset = end
        self._compacted_to = self._files.state.compacted_to
        self._sparse = bool(self._files.state.sparse)
        self._reader.forget()
        self._limits.set(self._config, self._active)
        self._cached_bytes = 0

    def _cutter(self) -> Cutter:
        interval = self._config.index_interval_bytes
        return Cutter(self._fs, self.directory, self._segments, self._cache, self._flushes, interval)

    # ---- from within

    def begin_compaction(
        self, wall_ms: int, now_ms: int, upto: int, *, forced: bool = False
    ) -> Compaction | None:
        """A pass worth making, None when there is none. Nothing at or above `upto` (the high watermark), of an open
        transaction, unsynced, or in the active segment is touched. Drive it with `step`, in a thread if you like; then
        `finish_compaction` or `abandon`. One at a time."""
        believed_ms = self._believed_ms(wall_ms, now_ms)
        if not self._config.compact or self._failure is not None:
            return None
        limit = min(self._settled(upto), self.durable_end)
        found = find_cleanable(
            self._segments.closed,
            self._active,
            self._config,
            self._compacted_to,
            self.start_offset,
            limit,
            believed_ms,
            forced=forced or self._compaction_unfinished,
        )
        if found is None:
            return None
        return Compaction(
            self._fs,
            self._config,
            CompactionInput(
                found.segments,
                found.dirty_from,
                found.upto,
                self._derived.aborted.between(0, self.end_offset),
                {pid: LastBatch(producer.last_offset, producer.epoch) for pid, producer in self.producers},
                believed_ms,
            ),
        )

    def finish_compaction(self, done: Compaction) -> CompactionReport:
        """Swap the result in, oldest segments first, so that no value goes before what superseded it is in place. When
        the segments changed meanwhile (truncated, deleted) the result is thrown away."""
        current = {id(segment) for segment in self._segments.closed}
        stale = any(id(segment) not in current for segment in done.input.segments)
        if stale or self._failure is not None:
            done.abandon()
            return CompactionReport(0, 0, 0, False)
        freed = 0
        try:
            for group in done.groups:
                freed += sum(segment.size for segment in group.replaced) - group.cleaned.size
                self._swap_in(group)
        except OSError as error:
            self.fail(f"a compaction could not be swapped in: {error}")
            raise
        self._derived.aborted.replace(done.input.segments[0].base_offset, done.rewritten_to, done.aborted)
        for group in done.groups:
            self._write_caches(group.cleaned)
            group.cleaned.index = None
        self._compacted_to = max(self._compacted_to, done.compacted_to)
        self._compaction_unfinished = done.compacted_to < done.input.upto
        self.checkpoint()
        return CompactionReport(done.read_bytes, freed, len(done.groups), self._compaction_unfinished)

    def _swap_in(self, group: Group) -> None:
        replaced, cleaned = group.replaced, group.cleaned
        self._sparse = True
        for segment in replaced:
            self._cache.drop(segment.path)
            self._flushes.forget(segment)
        commit_swap(self._fs, self.directory, cleaned.base_offset)
        for path in complete_swap(self._fs, self.directory, [segment.base_offset for segment in replaced]):
            self._segments.adopt_trash(path)
        self._segments.replace(self._segments.position_of(cleaned.base_offset), len(replaced), cleaned)
        self._reader.forget()
        for segment in replaced[1:]:
            drop_snapshot(self._fs, self.directory, segment.base_offset)

    def compact(self, wall_ms: int, now_ms: int, upto: int, *, forced: bool = False) -> int:
        """All passes at once: for tools and tests. Returns how many were made."""
        passes = 0
        while (run := self.begin_compaction(wall_ms, now_ms, upto, forced=forced and not passes)) is not None:
            run.run()
            passes += 1
            if not self.finish_compaction(run).unfinished:
                break
        return passes
