"""Adapter: sealed segments read straight from the broker's disk, where the task can see it. The broker gives offsets only.

Safe because a range ends at or below the high watermark, so what lies in it is committed and never changes; a sealed
segment is not written any more; and a file that retention or compaction replaces while it is open keeps its content. The
directory carries the topic's id, so a topic that was created again is never mistaken for its predecessor. Every batch is
checked by its CRC. What can't be decided from the files alone goes to the broker: the active segment, and everything from
the first transactional batch on (which transactions were aborted is the broker's knowledge).
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
from collections.abc import Iterator, Sequence

from headrace.core.limits import MIB
from headrace.records.batch import BatchHeader, crc_matches, read_header
from headrace.spark.fetching import Piece
from headrace.spark.plan import OffsetRange

log = logging.getLogger(__name__)

_PIECE_BYTES = 4 * MIB
_NAME_DIGITS = 20


def partition_directory(paths: Sequence[str], topic: str, topic_id: bytes, partition: int) -> str | None:
    """Where this partition's files are, or None when none of the directories is (or looks like) this broker's."""
    for path in paths:
        directory = os.path.join(path, f"{topic[:180]}@{topic_id.hex()}", str(partition))
        if os.path.isdir(directory):
            return directory
    return None


def sealed_segments(directory: str) -> list[tuple[int, int, str]]:
    """(first offset, where the next segment begins, path), oldest first, without the one that is still written."""
    bases = sorted(
        int(name[:_NAME_DIGITS])
        for name in os.listdir(directory)
        if name.endswith(".log") and len(name) == _NAME_DIGITS + 4 and name[:_NAME_DIGITS].isdigit()
    )
    return [
        (base, following, os.path.join(directory, f"{base:020d}.log"))
        for base, following in itertools.pairwise(bases)
    ]


def read_sealed(directory: str, wanted: OffsetRange) -> Iterator[tuple[Piece | None, int]]:
    """Pieces and the offset behind each; ends where the broker has to go on. A piece may be None (offsets without records)."""
    position = wanted.start
    for first, following, path in sealed_segments(directory):
        if following <= position:
            continue
        if first > position or position >= wanted.end:
            return
        try:
            with open(path, "rb") as file:
                # Unmapped when the last array that looks into it is gone, not before.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped.madvise(mmap.MADV_SEQUENTIAL)
            for piece, behind in _read_segment(memoryview(mapped), wanted._replace(start=position)):
                position = behind
                yield piece, behind
                if piece is None:
                    return
        except (OSError, ValueError) as problem:
            log.warning("direct read of %s stops at offset %d: %s", path, position, problem)
            return
        if position < wanted.end:
            position = following
            yield Piece(b"", []), following


def _read_segment(view: memoryview, wanted: OffsetRange) -> Iterator[tuple[Piece | None, int]]:
    """A piece of None means: the broker goes on from here."""
    at, size = 0, len(view)
    start = 0
    behind = wanted.start
    batches: list[tuple[int, BatchHeader]] = []
    while at < size:
        header = read_header(view, at)
        following = at + header.size
        if header.next_offset <= wanted.start:
            at = start = following
            continue
        if header.base_offset >= wanted.end:
            break
        if header.is_transactional or following > size or not crc_matches(view, at, header):
            if batches:
                yield Piece(view[start:at], batches), behind
            yield None, behind
            return
        if batches and following - start > _PIECE_BYTES:
            yield Piece(view[start:at], batches), behind
            batches, start = [], at
        batches.append((at - start, header))
        behind = header.next_offset
        at = following
    if batches:
        yield Piece(view[start:at], batches), behind
