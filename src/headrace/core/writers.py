"""Machine: who writes where, for the flow map (5.1): client ids as they were seen, with rates that forget.

A note is two looks into tables, on the path of every produce; whatever costs more is done once a second by whoever takes the numbers.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_PER_TOPIC = 64
OTHERS = ("others", "")
"""All those beyond `MOST_PER_TOPIC`."""
FORGET_MS = 300_000
FADING = 0.35
"""Of what is known a second weighs so much."""

Who = tuple[str, str]
"""Client id and door: kafka, REST or SQS."""


class WriterNow(NamedTuple):
    client: str
    door: str
    per_s: float
    last_ms: int
    """When something last came from it, by the wall clock."""


class _Known:
    __slots__ = ("last_ms", "per_s")

    def __init__(self) -> None:
        self.per_s = 0.0
        self.last_ms = 0


class Writers:
    def __init__(self) -> None:
        self._counted: dict[str, dict[Who, int]] = {}
        """Since the last look."""
        self._known: dict[str, dict[Who, _Known]] = {}
        self._looked_ms = 0

    def note(self, topic: str, who: Who, records: int) -> None:
        book = self._counted.get(topic)
        if book is None:
            book = self._counted[topic] = {}
        if who not in book and len(book) >= MOST_PER_TOPIC:
            who = OTHERS
        book[who] = book.get(who, 0) + records

    def look(self, now_ms: int, wall_ms: int) -> None:
        """Once a second: counts become rates, and who was silent for five minutes is forgotten."""
        seconds = (now_ms - self._looked_ms) / 1000
        first = not self._looked_ms
        if seconds <= 0:
            return
        self._looked_ms = now_ms
        counted, self._counted = self._counted, {}
        for topic, book in counted.items():
            known = self._known.setdefault(topic, {})
            for who in book:
                if who not in known:
                    known[who if len(known) < MOST_PER_TOPIC else OTHERS] = _Known()
        for topic, known in list(self._known.items()):
            book = counted.get(topic, {})
            for who, one in list(known.items()):
                count = book.get(who, 0)
                per_s = 0.0 if first else count / seconds
                one.per_s = per_s if not one.last_ms else one.per_s + FADING * (per_s - one.per_s)
                if count:
                    one.last_ms = wall_ms
                elif wall_ms - one.last_ms > FORGET_MS:
                    del known[who]
            if not known:
                del self._known[topic]

    def of(self, topic: str) -> list[WriterNow]:
        """The busiest first."""
        rows = [
            WriterNow(*who, round(one.per_s, 2) if one.per_s >= 0.005 else 0.0, one.last_ms)
            for who, one in self._known.get(topic, {}).items()
        ]
        return sorted(rows, key=lambda row: (-row.per_s, -row.last_ms, row.client))

    def all(self) -> dict[str, list[WriterNow]]:
        return {topic: self.of(topic) for topic in self._known}

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)
