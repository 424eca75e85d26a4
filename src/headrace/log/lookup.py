"""Machine: finding records by timestamp: exact, through the sparse index and one opened batch.

Timestamps need not rise with offsets, so an index entry keeps the highest timestamp in front of it: the first entry
whose value reaches the wanted one has the answer in the stretch before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.log.index import NO_TIMESTAMP
from headrace.log.results import FoundOffset, LogCorrupt
from headrace.log.scanning import BadBatch, Scanned, scan_file
from headrace.log.segment import Segment
from headrace.log.segment_cache import SegmentCache
from headrace.log.segments import SegmentList
from headrace.records.batch import CorruptBatch
from headrace.records.read import iter_records


def find_timestamp(
    segments: SegmentList, cache: SegmentCache, interval: int, timestamp: int, start: int, upto: int
) -> FoundOffset | None:
    """The first record in [start, upto) with a timestamp of at least `timestamp`."""
    for segment in segments.holding(start, upto):
        if segment.max_timestamp < timestamp:
            continue
        entry = cache.index(segment, interval).before_timestamp(timestamp)
        for batch in _batches_from(segment, cache, interval, entry, start):
            if batch.header.base_offset >= upto:
                return None
            if batch.header.max_timestamp >= timestamp:
                found = _first_record(batch, timestamp, start, upto)
                if found is not None:
                    return found
    return None


def find_max_timestamp(
    segments: SegmentList, cache: SegmentCache, interval: int, start: int, upto: int
) -> FoundOffset | None:
    """The first record in [start, upto) that has the highest timestamp there."""
    best: FoundOffset | None = None
    for segment in segments.holding(start, upto):
        if best is not None and segment.max_timestamp <= best.timestamp:
            continue
        entry = 0
        if segment.base_offset >= start and segment.next_offset <= upto:
            # The whole segment counts, so the index knows where its highest timestamp is.
            entry = cache.index(segment, interval).before_timestamp(segment.max_timestamp)
        for batch in _batches_from(segment, cache, interval, entry, start):
            if batch.header.base_offset >= upto:
                break
            if best is None or batch.header.max_timestamp > best.timestamp:
                best = _highest_record(batch, best, start, upto)
    return best


def _batches_from(
    segment: Segment, cache: SegmentCache, interval: int, entry: int, start: int
) -> Iterator[Scanned]:
    index = cache.index(segment, interval)
    position, offset = 0, segment.base_offset
    if len(index):
        position, offset = index.positions[entry], segment.base_offset + index.offsets[entry]
        if offset < start:
            relative, position = index.before(start - segment.base_offset)
            offset = segment.base_offset + relative
    try:
        for batch in scan_file(cache.file(segment), position, segment.size, offset, gaps=not segment.dense):
            if batch.header.next_offset > start:
                yield batch
    except BadBatch as error:
        raise LogCorrupt(segment.path, error.position, error.offset, error.detail) from None


def _first_record(batch: Scanned, timestamp: int, start: int, upto: int) -> FoundOffset | None:
    # A header may promise more than its records hold: clients compute maxTimestamp. Then the search goes on.
    for offset, found in _timestamps(batch):
        if found >= timestamp and start <= offset < upto:
            return FoundOffset(offset, found, batch.header.leader_epoch)
    return None


def _highest_record(batch: Scanned, best: FoundOffset | None, start: int, upto: int) -> FoundOffset | None:
    highest = NO_TIMESTAMP if best is None else best.timestamp
    for offset, found in _timestamps(batch):
        if found > highest and start <= offset < upto:
            highest = found
            best = FoundOffset(offset, found, batch.header.leader_epoch)
    return best


def _timestamps(batch: Scanned) -> Iterator[tuple[int, int]]:
    try:
        for record in iter_records(batch.data, batch.at, max_bytes=MAX_DECOMPRESSED_BYTES):
            yield record.offset, record.timestamp
    except CorruptBatch:
        # The CRC held: this is what the client sent. Its records can not be told apart, so the batch has no time.
        return
