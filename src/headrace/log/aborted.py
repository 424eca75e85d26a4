"""Machine: which transactions were aborted, where (R48).

A read_committed consumer gets, with the data, the aborted transactions that overlap it, and leaves their records out
until it meets the marker. So an entry too few shows aborted data, and an entry too many (a marker that is gone, or a
transaction that wrote nothing here) swallows data that was committed later.

Invariant: one entry per ABORT marker in the log that ended a transaction with data, in the order of the markers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the ABORT marker."""
    last_stable_offset: int
    """The earliest offset of any transaction still open when this one ended, else the one after the marker."""


class AbortedIndex:
    __slots__ = ("_entries", "_markers")

    def __init__(self) -> None:
        self._entries: list[AbortedTxn] = []
        self._markers: list[int] = []
        """The last offsets of the entries, to search in."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: AbortedTxn) -> None:
        if self._markers and entry.last_offset <= self._markers[-1]:
            raise ValueError(f"the marker at {entry.last_offset} does not follow {self._markers[-1]}")
        self._entries.append(entry)
        self._markers.append(entry.last_offset)

    def overlapping(self, start: int, end: int) -> list[AbortedTxn]:
        """Transactions with a record or marker in [start, end), sorted by first offset as clients expect."""
        found = []
        for position in range(bisect_left(self._markers, start), len(self._entries)):
            entry = self._entries[position]
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break  # whatever was aborted later began at or after this
        found.sort(key=lambda entry: entry.first_offset)
        return found

    def between(self, start: int, end: int) -> list[AbortedTxn]:
        """Entries whose marker lies in [start, end): those that a segment's index file keeps."""
        return self._entries[bisect_left(self._markers, start) : bisect_left(self._markers, end)]

    def truncate(self, offset: int) -> None:
        """The log now ends at `offset`: transactions whose marker is gone are open again, not aborted."""
        keep = bisect_left(self._markers, offset)
        del self._entries[keep:], self._markers[keep:]

    def drop_before(self, offset: int) -> None:
        """The log now starts at `offset`."""
        gone = bisect_left(self._markers, offset)
        del self._entries[:gone], self._markers[:gone]

    def replace(self, start: int, end: int, entries: list[AbortedTxn]) -> None:
        """Compaction rewrote [start, end): these are the transactions with a marker there that still have data."""
        first, last = bisect_left(self._markers, start), bisect_left(self._markers, end)
        self._entries[first:last] = entries
        self._markers[first:last] = [entry.last_offset for entry in entries]

    def clear(self) -> None:
        self._entries.clear()
        self._markers.clear()
