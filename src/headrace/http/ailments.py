"""Driver: what is not well, and since when: of this broker looked at once a second, of partitions as the metadata tells.

Who asks a minute after something broke is told of a minute, and not of the moment of asking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.cluster.deltas import Delta, PartitionChanged, TopicGone
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import PartitionState
from headrace.core.ports import Clock
from headrace.http.health import Degraded

Look = Callable[[], Mapping[str, str | None]]
"""What each check says now: None is well, Degraded is told and served all the same (http/health.py)."""

LEADERS, IN_SYNC = "leaders", "in sync"
Place = tuple[bytes, int]
"""A partition by its topic's id: a name may be made again."""
Missed = dict[Place, frozenset[int]]
"""Partitions, and the brokers that each lacks."""


class Ailments:
    def __init__(self, clock: Clock, image: ClusterImage, look: Look) -> None:
        self._clock = clock
        self._look = look
        self._since: dict[str, int] = {}
        self._leaderless: Missed = {}
        self._lacking: Missed = {}
        for topic, number, state in image.all_partitions():
            self._place((topic.id, number), state)
        self.tick()

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            match delta:
                case PartitionChanged(topic, number, _, state):
                    self._place((topic.id, number), state)
                case TopicGone(_, topic_id, count):
                    for number in range(count):
                        self._leaderless.pop((topic_id, number), None)
                        self._lacking.pop((topic_id, number), None)
        self._note(LEADERS, bool(self._leaderless))
        self._note(IN_SYNC, bool(self._lacking))

    def tick(self) -> None:
        """Once a second."""
        self._noted()

    def _noted(self) -> Mapping[str, str | None]:
        looked = self._look()
        for name, text in looked.items():
            self._note(name, text is not None)
        self.heard([])
        return looked

    def found(self) -> dict[str, tuple[str, int]]:
        """Each check that finds something that lasts: what, and since when by the wall clock."""
        troubles = {
            **self._noted(),
            LEADERS: _told(self._leaderless, "without a leader", "held by"),
            IN_SYNC: _told(self._lacking, "with a replica that is not in sync", "it is at"),
        }
        return {
            name: (text, self._since[name])
            for name, text in troubles.items()
            if text is not None and name != "loop"  # a moment's, not a state
        }

    def _place(self, place: Place, state: PartitionState) -> None:
        missed = frozenset(state.replicas).difference(state.isr)
        for found, bad, brokers in (
            (self._leaderless, state.leader < 0, frozenset(state.replicas)),
            (self._lacking, state.leader >= 0 and bool(missed), missed),
        ):
            if bad:
                found[place] = brokers
            else:
                found.pop(place, None)

    def _note(self, name: str, is_there: bool) -> None:
        """What is gone and comes back begins anew."""
        if is_there:
            self._since.setdefault(name, self._clock.wall_ms())
        else:
            self._since.pop(name, None)


def _told(missed: Missed, what: str, where: str) -> Degraded | None:
    if not missed:
        return None
    brokers = sorted(frozenset().union(*missed.values()))
    named = f"{'broker' if len(brokers) == 1 else 'brokers'} {', '.join(map(str, brokers))}"
    return Degraded(f"{many(len(missed), 'partition')} {what} ({where} {named})")


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
