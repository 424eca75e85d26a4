"""Machine: cutting a log back to an offset, and the producers back with it (R23).

Invariant: what is left ends at a batch boundary, is synced, and no index or snapshot describes what is gone.
"""

from __future__ import annotations

from headrace.core.ports import FileSystem
from headrace.log.derived import DerivedState
from headrace.log.flushing import FlushQueue
from headrace.log.names import INDEX, LOG, snapshot_path
from headrace.log.producers import ProducerTable
from headrace.log.results import LogCorrupt
from headrace.log.scanning import BadBatch, scan_file
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.log.snapshots import load_newest, snapshot_offsets


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

    def cut(self, offset: int) -> int:
        """Remove every batch that reaches `offset` or beyond. Returns where the log ends now: at `offset`, or at the
        start of the batch that `offset` was in the middle of."""
        number = self._segments.position_of(offset)
        segment = self._segments[number]
        self._remove_caches(segment, offset)
        for gone in self._segments.retire_from(number + 1):
            self._flushes.forget(gone)
        self._reopen(segment)
        assert segment.file is not None
        end = self._rewind(segment, offset)
        if segment.size < segment.file.size:
            segment.file.truncate(segment.size)
        segment.file.sync()
        self._fs.sync_dir(self._directory)
        return end

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
                self._fs.remove(snapshot_path(self._directory, offset))

    def _reopen(self, segment: Segment) -> None:
        """A closed segment becomes the active one."""
        segment.index = self._cache.index(segment, self._interval)
        self._flushes.reclaim(segment)
        self._cache.drop(segment.path)
        if segment.file is None:
            segment.file = self._fs.open(segment.path)

    def _rewind(self, segment: Segment, offset: int) -> int:
        """Go back to the last index entry in front of `offset`, then forward batch by batch."""
        index, file = segment.index, segment.file
        assert index is not None and file is not None
        size, dense = segment.size, segment.dense
        kept_end = segment.next_offset if segment.size else segment.base_offset
        if offset >= kept_end:
            return offset  # in a gap behind the segment's last batch
        start, next_offset = 0, segment.base_offset
        segment.forget_recent()
        if len(index):
            relative, start = index.before(offset - 1 - segment.base_offset)
            next_offset = segment.base_offset + relative
            entry = index.positions.index(start)
            segment.max_timestamp = index.timestamps[entry]
            index.truncate(start)
        segment.indexed_position = index.positions[-1] if len(index) else -1
        segment.size, segment.next_offset = start, next_offset
        segment.last_position, segment.last_base_offset, segment.last_crc = -1, -1, 0
        try:
            for batch in scan_file(file, start, size, next_offset, gaps=not dense):
                header = batch.header
                if header.next_offset > offset:
                    return min(offset, header.base_offset)
                segment.note(header, header.base_offset, self._interval)
        except BadBatch as error:
            raise LogCorrupt(segment.path, error.position, error.offset, error.detail) from None
        return offset

    def rebuild_producers(self, end: int) -> ProducerTable:
        """R40: newest usable snapshot, then replay. The aborted index was cut already and is exact."""
        first_base = self._segments[0].base_offset
        loaded = load_newest(self._fs, self._directory, end, first_base, [])
        offset, table = (first_base, ProducerTable()) if loaded is None else loaded
        scratch = DerivedState()
        scratch.producers = table
        for segment in self._segments.holding(offset, end):
            place = segment.place_of(
                max(offset, segment.base_offset), self._cache.index(segment, self._interval)
            )
            file, seen_ms = self._cache.file(segment), segment.appended_ms
            try:
                for batch in scan_file(file, place.position, segment.size, place.base_offset, gaps=True):
                    header = batch.header
                    if header.producer_id >= 0 and header.base_offset >= offset:
                        scratch.absorb(
                            header, batch.data, batch.at, header.base_offset, seen_ms, known_aborted=True
                        )
            except BadBatch as error:
                raise LogCorrupt(segment.path, error.position, error.offset, error.detail) from None
        return scratch.producers
