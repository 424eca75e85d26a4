"""Machine: which topics there are, as the driver told us, and which of them a subscription means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from headrace.core.ids import is_internal
from headrace.groups.topic_regex import InvalidPattern, NamePattern

MAX_CACHED_PATTERNS = 1_000

Sees = Callable[[str, str, str], bool]
"""Whether a principal at an address may see a topic."""


class TopicInfo(NamedTuple):
    topic_id: bytes
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()
    """Per partition, the racks of its replicas; empty when unknown."""


class TopicIndex:
    """One view of the cluster's topics. Immutable but for its cache; a new view replaces it as a whole."""

    __slots__ = ("_matches", "_sees", "by_id", "topics")

    def __init__(self, topics: Mapping[str, TopicInfo], sees: Sees | None = None) -> None:
        self.topics = topics
        self._sees = sees
        self.by_id = {info.topic_id: name for name, info in topics.items()}
        self._matches: dict[str, frozenset[str]] = {}

    def matching(self, pattern: str) -> frozenset[str]:
        """Raises InvalidPattern. Internal topics are left out, as clients do (exclude.internal.topics)."""
        found = self._matches.get(pattern)
        if found is None:
            found = NamePattern(pattern).select([name for name in self.topics if not is_internal(name)])
            if len(self._matches) >= MAX_CACHED_PATTERNS:
                self._matches.clear()
            self._matches[pattern] = found
        return found

    def resolve(
        self, names: Iterable[str], pattern: str | None, reader: str = "", host: str = ""
    ) -> frozenset[str]:
        """The topics of a subscription that exist. Its pattern was checked when it came; one that the topics of today
        make too expensive matches nothing, and it matches nothing that its reader may not see (A44)."""
        found = frozenset(name for name in names if name in self.topics)
        if not pattern:
            return found
        try:
            matching = self.matching(pattern)
            if reader and self._sees is not None:
                sees = self._sees
                return found.union(name for name in matching if sees(reader, host, name))
            return found | matching
        except InvalidPattern:
            self._matches[pattern] = frozenset()
            return found

    def fingerprint(self, names: Iterable[str]) -> int:
        """Changes whenever the partitions of one of these topics do. Stable across processes: it is journaled."""
        digest = blake2b(digest_size=8)
        for name in sorted(names):
            info = self.topics.get(name)
            if info is not None:
                digest.update(b"%s\0%s%d\0" % (name.encode(), info.topic_id, info.partition_count))
        return int.from_bytes(digest.digest(), "big", signed=True)
