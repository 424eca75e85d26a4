"""Machine: what a simulated disk holds: bytes and names, each with what a power cut may take back.

A file keeps one copy of its bytes and a journal of the appends and truncations since the last sync, so that the
durable content can be had by undoing them. Names work the same way: a journal of changes to directory entries that
no sync_dir has covered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from headrace.testing.dice import Dice

SECTOR_BYTES = 512
_MERGE_BYTES = 64 * 1024

Node = TypeVar("Node", bound="FileNode | DirectoryNode")


class _Appended(NamedTuple):
    position: int
    size: int


class _Truncated(NamedTuple):
    size: int
    tail: bytes


class FileNode:
    __slots__ = ("_unsynced", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._unsynced: list[_Appended | _Truncated] = []

    @property
    def is_dirty(self) -> bool:
        return bool(self._unsynced)

    def append(self, data: bytes, *, merge: bool = True) -> None:
        position = len(self.data)
        self.data += data
        last = self._unsynced[-1] if self._unsynced else None
        # Neighbouring appends become one extent, as the page cache writes them back together.
        if merge and isinstance(last, _Appended) and last.size + len(data) <= _MERGE_BYTES:
            self._unsynced[-1] = _Appended(last.position, last.size + len(data))
        else:
            self._unsynced.append(_Appended(position, len(data)))

    def truncate(self, size: int) -> None:
        tail = bytes(self.data[size:])
        del self.data[size:]
        self._unsynced.append(_Truncated(size, tail))

    def synced(self) -> None:
        self._unsynced.clear()

    def durable_bytes(self) -> bytes:
        data = bytearray(self.data)
        for change in reversed(self._unsynced):
            if isinstance(change, _Appended):
                del data[change.position :]
            else:
                data += change.tail
        return bytes(data)

    def lose_power(self, dice: Dice) -> None:
        """Each unsynced extent reached the platter not at all, in part, in some sectors, or whole."""
        if not self._unsynced:
            return
        written = self._written_extents()
        data = bytearray(self.durable_bytes())
        for change, content in zip(self._unsynced, written, strict=True):
            if isinstance(change, _Truncated):
                if dice.chance(0.5):
                    del data[change.size :]
                continue
            for start, piece in _surviving(content, change.position, dice):
                end = start + len(piece)
                if len(data) < end:
                    data += bytes(end - len(data))  # a hole: the size was written, the sectors were not
                data[start:end] = piece
        self.data = data
        self._unsynced.clear()

    def lose_dirty_pages(self, dice: Dice) -> None:
        """A failed write-back (S7): the pages are marked clean and dropped. The size stays, the content does not."""
        written = self._written_extents()
        for change, content in zip(self._unsynced, written, strict=True):
            if isinstance(change, _Appended) and dice.chance(0.75):
                end = min(change.position + len(content), len(self.data))
                if end > change.position:
                    self.data[change.position : end] = bytes(end - change.position)
        self._unsynced.clear()

    def _written_extents(self) -> list[bytes]:
        """What each unsynced append wrote, also where a later truncation took it away again."""
        data = bytearray(self.data)
        contents: list[bytes] = []
        for change in reversed(self._unsynced):
            if isinstance(change, _Appended):
                contents.append(bytes(data[change.position : change.position + change.size]))
                del data[change.position :]
            else:
                contents.append(b"")
                data += change.tail
        contents.reverse()
        return contents


def _surviving(content: bytes, position: int, dice: Dice) -> Iterable[tuple[int, bytes]]:
    outcome = dice.pick(("none", "prefix", "sectors", "all"))
    if outcome == "all":
        return [(position, content)]
    if outcome == "prefix":
        return [(position, content[: dice.between(0, len(content))])]
    if outcome == "none":
        return []
    pieces = []
    start = position
    while start < position + len(content):
        end = min((start // SECTOR_BYTES + 1) * SECTOR_BYTES, position + len(content))
        if dice.chance(0.5):
            pieces.append((start, content[start - position : end - position]))
        start = end
    return pieces


class DirectoryNode:
    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, FileNode | DirectoryNode] = {}


class EntryChange(NamedTuple):
    directory: DirectoryNode
    name: str
    before: FileNode | DirectoryNode | None
    after: FileNode | DirectoryNode | None


class NameJournal:
    """Changes of names that are not durable yet. One operation is one list of changes and happens whole or not."""

    def __init__(self) -> None:
        self._operations: list[list[EntryChange]] = []

    def do(self, *changes: EntryChange) -> None:
        operation = list(changes)
        _apply(operation)
        self._operations.append(operation)

    def sync(self, directory: DirectoryNode) -> None:
        """Make what happened in this directory durable, and everything that must have happened before it."""
        needed: set[tuple[int, str]] = set()
        kept: list[list[EntryChange]] = []
        for operation in reversed(self._operations):
            keys = {(id(change.directory), change.name) for change in operation}
            if any(change.directory is directory for change in operation) or keys & needed:
                needed |= keys
            else:
                kept.append(operation)
        kept.reverse()
        self._operations = kept

    def lose_power(self, dice: Dice) -> None:
        """Old or new per operation. A journaling file system keeps a prefix; others keep any subset that fits."""
        for operation in reversed(self._operations):
            for change in reversed(operation):
                _set(change.directory, change.name, change.before)
        keeps_order = dice.chance(0.5)
        for operation in self._operations:
            survives = dice.chance(0.5)
            if keeps_order and not survives:
                break
            # An operation on a name needs the ones before it on that name: they show as an unexpected entry.
            if survives and all(c.directory.entries.get(c.name) is c.before for c in operation):
                _apply(operation)
        self._operations.clear()

    @property
    def is_clean(self) -> bool:
        return not self._operations


def _apply(operation: list[EntryChange]) -> None:
    for change in operation:
        _set(change.directory, change.name, change.after)


def _set(directory: DirectoryNode, name: str, node: FileNode | DirectoryNode | None) -> None:
    if node is None:
        directory.entries.pop(name, None)
    else:
        directory.entries[name] = node
