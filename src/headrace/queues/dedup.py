"""Machine: the index of deduplication ids (R59: durable for five minutes by log timestamp).

The log decides: the first message with an id, in offset order, is kept; another one whose log timestamp is within the
window of the first is a duplicate and is settled when it is read. So two sends that race both succeed, one message is
delivered, and no clock but the log's is asked. `FindDuplicate` lets a door answer a repeated send with the first
one's offset without writing anything; it is a courtesy, not the rule.

The index outlives its messages (an id counts even after its message is acknowledged and deleted), so it is journaled,
in pages with keys of their own, before its messages can be received. A page is forgotten when everything in it is older
than the window. Reading a piece of the log again changes nothing: what was kept is kept. (After a seek far back, a
duplicate whose id was used again since is delivered again, like everything else.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from headrace.queues.commands import LoggedMessage
from headrace.queues.facts import Sighting


class _Page(NamedTuple):
    number: int
    newest_ms: int
    last_offset: int
    digests: tuple[bytes, ...]


class Sifted(NamedTuple):
    """What reading a piece of the log found out."""

    fresh: tuple[Sighting, ...]
    duplicates: tuple[int, ...]
    newest_ms: int


def digest_of(dedup_id: bytes) -> bytes:
    return blake2b(dedup_id, digest_size=16).digest()


class DedupIndex:
    __slots__ = ("_kept", "_pages", "newest_ms", "next_page")

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[int, int]] = {}
        """digest -> (timestamp, offset) of the message that was kept."""
        self._pages: deque[_Page] = deque()
        self.newest_ms = 0
        self.next_page = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, digest: bytes, timestamp_ms: int, window_ms: int) -> int | None:
        """The offset of the message that makes a new one with this id a duplicate."""
        kept = self._kept.get(digest)
        return None if kept is None or timestamp_ms - kept[0] >= window_ms else kept[1]

    def sift(self, messages: Iterable[LoggedMessage], window_ms: int) -> Sifted:
        """Who is new and who is a duplicate. Changes nothing."""
        fresh: dict[bytes, Sighting] = {}
        duplicates: list[int] = []
        newest_ms = self.newest_ms
        for offset, _, _, dedup_id, _, _, timestamp_ms in messages:
            if not dedup_id:
                continue
            newest_ms = max(newest_ms, timestamp_ms)
            digest = digest_of(dedup_id)
            earlier = fresh.get(digest)
            kept = self._kept.get(digest) if earlier is None else (earlier.timestamp_ms, earlier.offset)
            if kept is not None and kept[1] >= offset:
                continue  # read again; and what was seen later must not be forgotten for it
            if kept is not None and timestamp_ms - kept[0] < window_ms:
                duplicates.append(offset)
            else:
                fresh[digest] = Sighting(digest, timestamp_ms, offset)
        return Sifted(tuple(fresh.values()), tuple(duplicates), newest_ms)

    def outdated_pages(self, newest_ms: int, window_ms: int) -> tuple[int, ...]:
        outdated: list[int] = []
        for page in self._pages:
            if newest_ms - page.newest_ms < window_ms:
                break
            outdated.append(page.number)
        return tuple(outdated)

    def page_numbers(self) -> tuple[int, ...]:
        return tuple(page.number for page in self._pages)

    def learn(self, number: int, sightings: Iterable[Sighting]) -> None:
        digests: list[bytes] = []
        newest_ms = last_offset = 0
        for digest, timestamp_ms, offset in sightings:
            self._kept[digest] = (timestamp_ms, offset)
            newest_ms = max(newest_ms, timestamp_ms)
            last_offset = max(last_offset, offset)
            digests.append(digest)
        self._pages.append(_Page(number, newest_ms, last_offset, tuple(digests)))
        self.next_page = max(self.next_page, number + 1)
        self.newest_ms = max(self.newest_ms, newest_ms)

    def forget(self, numbers: Iterable[int]) -> None:
        gone = set(numbers)
        while gone and self._pages and self._pages[0].number in gone:
            page = self._pages.popleft()
            gone.discard(page.number)
            for digest in page.digests:
                kept = self._kept.get(digest)
                # A later page may have seen the id again, after the window; then it is that page's.
                if kept is not None and kept[1] <= page.last_offset:
                    del self._kept[digest]
