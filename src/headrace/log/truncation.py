"""Machine: cutting a log back to an offset, and the producers back with it (R23).

Invariant: what is left ends at a batch boundary, is synced, and no index or snapshot describes what is gone. After a crash at any point
the log is the one before or the one after, and all that is derived from it fits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from headrace.core.ports import File, FileSystem
from headrace.log.derived import DerivedState
from headrace.log.flushing import FlushQueue
from headrace.log.index import NO_TIMESTAMP
from headrace.log.names import INDEX, LOG, TEMPORARY
from headrace.log.parts import FULL_DISK, LogParts
from headrace.log.producers import ProducerTable
from headrace.log.results import LogCorrupt
from headrace.log.scanning import SCAN_CHUNK_BYTES, BadBatch, Scanned, scan_file
from headrace.log.segment import BatchPlace, Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.log.snapshots import drop_snapshot, load_newest, snapshot_offsets


class Cutter:
    """The parts of a log that a cut goes through."""

    __slots__ = ("_cache", "_directory", "_flushes", "_fs", "_interval", "_segments")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        segments: SegmentList,
        cache: SegmentCache,
        flushes: FlushQueue,
        interval: int,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._segments = segments
        self._cache = cache
        self._flushes = flushes
        self._interval = interval

    def boundary(self, offset: int) -> int:
        """Where the log ends when every batch that reaches `offset` or beyond is removed: at `offset`, or at the start of
        the batch that `offset` is in the middle of."""
        segment = self._segments[self._segments.position_of(offset)]
        place = segment.place_of(offset, self._cache.index(segment, self._interval))
        for batch in self._scan(segment, place):
            if batch.header.next_offset > offset:
                return min(offset, batch.header.base_offset)
        return offset  # in a gap behind the segment's last batch

    def cut(self, end: int) -> None:
        """Remove every batch from `end` on, which is a boundary."""
        number = self._segments.position_of(end)
        segment = self._segments[number]
        self._remove_caches(segment, end)
        for gone in self._segments.retire_from(number + 1):
            self._flushes.forget(gone)
        self._reopen(segment)
        assert segment.file is not None
        if end < segment.next_offset:
            self._rewind(segment, end)
            self._shorten(segment, segment.file)
        segment.file.sync()
        self._fs.sync_dir(self._directory)

    def _shorten(self, segment: Segment, file: File) -> None:
        """Let the file end where the segment does. What was lent may lie in the sockets of clients as pages of this file, so it is
        never changed: the log goes on in a copy. What is lent is committed, so that takes an unclean election (R27)."""
        if segment.size >= segment.lent_to:
            file.truncate(segment.size)
            return
        path = segment.path + TEMPORARY
        if self._fs.exists(path):
            self._fs.remove(path)
        copy = self._fs.open(path, create=True)
        try:
            for position in range(0, segment.size, SCAN_CHUNK_BYTES):
                copy.append((file.read(position, min(SCAN_CHUNK_BYTES, segment.size - position)),))
            copy.sync()
            self._fs.rename(path, segment.path)
        except BaseException:
            copy.close()
            raise
        copy.path = segment.path
        self._flushes.close_file(file)
        segment.file, segment.lent_to = copy, 0

    def cut_all(self) -> None:
        for gone in self._segments.retire_from(0):
            self._flushes.forget(gone)
        self._drop_snapshots(0)

    def _remove_caches(self, segment: Segment, offset: int) -> None:
        index = segment.path.removesuffix(LOG) + INDEX
        if self._fs.exists(index):
            self._fs.remove(index)
        self._drop_snapshots(offset + 1)
        # Before the log gets shorter (and then longer again, with other batches): no cache of the old one may come back.
        self._fs.sync_dir(self._directory)

    def _drop_snapshots(self, first: int) -> None:
        for offset in snapshot_offsets(self._fs, self._directory):
            if offset >= first:
                drop_snapshot(self._fs, self._directory, offset)

    def _reopen(self, segment: Segment) -> None:
        """A closed segment becomes the active one."""
        segment.index = self._cache.index(segment, self._interval)
        self._flushes.reclaim(segment)
        self._cache.drop(segment.path)
        if segment.file is None:
            segment.file = self._fs.open(segment.path)

    def _rewind(self, segment: Segment, end: int) -> None:
        """Go back to the last index entry in front of `end`, then forward batch by batch."""
        index = segment.index
        assert index is not None
        segment.forget_recent()
        position, next_offset, max_timestamp = 0, segment.base_offset, NO_TIMESTAMP
        if len(index):
            relative, position = index.before(end - 1 - segment.base_offset)
            next_offset = segment.base_offset + relative
            max_timestamp = index.timestamps[bisect_left(index.positions, position)]
            index.truncate(position)
        batches = self._scan(segment, BatchPlace(position, next_offset, True))
        segment.size, segment.next_offset, segment.max_timestamp = position, next_offset, max_timestamp
        segment.opened_size = min(segment.opened_size, position)  # the rest is scanned right now
        segment.indexed_position = index.positions[-1] if len(index) else -1
        segment.last_position, segment.last_base_offset, segment.last_crc = -1, -1, 0
        for batch in batches:
            if batch.header.next_offset > end:
                break
            segment.note(batch.header, batch.header.base_offset, self._interval)
        if segment.size == 0:
            segment.next_offset = segment.base_offset

    def rebuild_producers(self, end: int) -> ProducerTable:
        """R40: newest usable snapshot, then replay. The aborted index was cut already and is exact."""
        first_base = self._segments[0].base_offset
        loaded = load_newest(self._fs, self._directory, end, first_base, [])
        offset, table = (first_base, ProducerTable()) if loaded is None else loaded
        scratch = DerivedState()
        scratch.producers = table
        for segment in self._segments.holding(offset, end):
            start = max(offset, segment.base_offset)
            place = segment.place_of(start, self._cache.index(segment, self._interval))
            for batch in self._scan(segment, place):
                header = batch.header
                if header.producer_id >= 0 and header.base_offset >= offset:
                    base, seen_ms = header.base_offset, segment.appended_ms
                    scratch.absorb(header, batch.data, batch.at, base, seen_ms, known_aborted=True)
        return scratch.producers

    def _scan(self, segment: Segment, place: BatchPlace) -> Iterator[Scanned]:
        file, size, gaps = self._cache.file(segment), segment.size, not segment.dense
        return _loudly(segment.path, scan_file(file, place.position, size, place.base_offset, gaps=gaps))


class Truncation:
    """Cutting the end off a log, in an order that a crash at any point in it leaves whole."""

    __slots__ = ("_parts",)

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def cut(self, offset: int, start: int) -> tuple[int, int]:
        """R23: remove every batch that reaches `offset` or beyond, with all that was derived from it. Returns where the log, which starts
        at `start`, starts and ends now: lower than `offset` when that was in the middle of a batch."""
        parts = self._parts
        try:
            cutter = self._cutter()
            end = cutter.boundary(offset)
            if end < start:
                # The batch that is cut reaches below the start. It has to come again whole (R11), so the log begins there.
                self.restart(end)
                return end, end
            self._lower_state(end)
        except OSError as error:
            if error.errno not in FULL_DISK:
                parts.fail(f"a truncation failed: {error}")
            raise
        try:
            cutter.cut(end)
            parts.active = parts.segments.active
            if parts.active.next_offset != end:
                parts.begin_segment(
                    end
                )  # in a gap that compaction left: the name of the file keeps the offset
            derived = parts.derived
            parts.flushes.truncated(end)
            derived.aborted.truncate(end)
            derived.epochs.truncate_end(end)
            self._write_epochs_if_there_is_room()
            derived.producers.take(cutter.rebuild_producers(end))
        except OSError as error:
            parts.fail(f"a truncation failed: {error}")
            raise
        parts.settle()
        return start, end

    def restart(self, offset: int) -> None:
        """R26: forget everything and begin anew at `offset`, the leader's start."""
        parts = self._parts
        # First that it restarts and where, then what is gone: a crash on the way ends with an empty log.
        state = parts.files.state._replace(
            recovery_point=offset, log_start=offset, high_watermark=offset, compacted_to=0, sparse=0, restarting=1
        )  # fmt: skip
        try:
            parts.files.write(state)
        except OSError as error:
            if error.errno not in FULL_DISK:
                parts.fail(f"a restart of the log failed: {error}")
            raise
        try:
            self._cutter().cut_all()
            parts.begin_segment(offset)
            parts.files.write(state._replace(restarting=0))
            parts.flushes.restarted(offset)
            derived = parts.derived
            derived.aborted.clear()
            derived.epochs.clear()
            self._write_epochs_if_there_is_room()
            derived.producers.clear()
        except OSError as error:
            parts.fail(f"a restart of the log failed: {error}")
            raise
        parts.settle()

    def _write_epochs_if_there_is_room(self) -> None:
        """On a full disk they are in doubt from here on, and written before anything is appended (S15): the file as it is says too much,
        as after a crash between the cut and this."""
        try:
            self._parts.files.write_epochs()
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise

    def _lower_state(self, offset: int) -> None:
        """Before the log gets shorter: a log that ends below its recovery point would be taken for damaged."""
        parts = self._parts
        state = parts.files.state
        lowered = state._replace(
            recovery_point=max(min(state.recovery_point, offset), state.log_start),
            high_watermark=min(state.high_watermark, offset),
            compacted_to=min(parts.compacted_to, offset),
            sparse=int(parts.sparse),
        )
        parts.files.write(lowered)

    def _cutter(self) -> Cutter:
        parts = self._parts
        interval = parts.config.index_interval_bytes
        return Cutter(parts.fs, parts.directory, parts.segments, parts.cache, parts.flushes, interval)


def _loudly(path: str, batches: Iterator[Scanned]) -> Iterator[Scanned]:
    try:
        yield from batches
    except BadBatch as error:
        raise LogCorrupt(path, error.position, error.offset, error.detail) from None
