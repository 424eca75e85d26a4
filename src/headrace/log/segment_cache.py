"""Machine: the open files and loaded indexes of closed segments, at most so many at a time (S17).

One cache serves all logs of a broker, so that thousands of segments do not use up the descriptors. Reads are
synchronous, so nobody holds a file across an eviction. Active segments keep their own files.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.core.ports import File, FileSystem
from headrace.log.index import BadIndex, SparseIndex, read_index
from headrace.log.names import INDEX, LOG
from headrace.log.results import LogCorrupt
from headrace.log.scanning import BadBatch, scan_file
from headrace.log.segment import Segment

DEFAULT_CAPACITY = 256


class _Opened:
    __slots__ = ("file", "index")

    def __init__(self, file: File, index: SparseIndex | None) -> None:
        self.file = file
        self.index = index


class SegmentCache:
    __slots__ = ("_capacity", "_fs", "_opened")

    def __init__(self, fs: FileSystem, capacity: int = DEFAULT_CAPACITY) -> None:
        self._fs = fs
        self._capacity = capacity
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def __len__(self) -> int:
        return len(self._opened)

    def file(self, segment: Segment) -> File:
        return segment.file if segment.file is not None else self._open(segment.path).file

    def index(self, segment: Segment, interval: int) -> SparseIndex:
        if segment.index is not None:
            return segment.index
        opened = self._open(segment.path)
        if opened.index is None:
            opened.index = self._load_index(segment, opened.file, interval)
        return opened.index

    def adopt(self, path: str, file: File, index: SparseIndex | None) -> None:
        """A segment was closed and synced: its file serves readers from now on."""
        self.drop(path)
        self._opened[path] = _Opened(file, index)
        self._shrink()

    def drop(self, path: str) -> None:
        """The file was truncated, replaced or removed."""
        opened = self._opened.pop(path, None)
        if opened is not None:
            opened.file.close()

    def _open(self, path: str) -> _Opened:
        opened = self._opened.get(path)
        if opened is None:
            opened = self._opened[path] = _Opened(self._fs.open(path, writable=False), None)
            self._shrink()
        else:
            self._opened.move_to_end(path)
        return opened

    def _shrink(self) -> None:
        while len(self._opened) > self._capacity:
            self._opened.popitem(last=False)[1].file.close()

    def _load_index(self, segment: Segment, log: File, interval: int) -> SparseIndex:
        try:
            file = self._fs.open(segment.path.removesuffix(LOG) + INDEX, writable=False)
        except FileNotFoundError:
            return build_index(segment, log, interval)
        try:
            summary, index = read_index(file)
        except BadIndex:
            return build_index(segment, log, interval)
        finally:
            file.close()
        return index if summary == segment.summary() else build_index(segment, log, interval)


def build_index(segment: Segment, log: File, interval: int) -> SparseIndex:
    """S14: the index of a closed segment from its log."""
    scratch = Segment(segment.path, segment.base_offset)
    try:
        for batch in scan_file(log, 0, segment.size, segment.base_offset, gaps=not segment.dense):
            scratch.note(batch.header, batch.header.base_offset, interval)
    except BadBatch as error:
        raise LogCorrupt(segment.path, error.position, error.offset, error.detail) from None
    assert scratch.index is not None
    return scratch.index
