"""Machine: what a streams application is made of, and what that means with the topics that there are.

A subtopology has one task for each partition of the widest of its source topics. Repartition topics lie between
subtopologies, changelog topics keep the state of one; both are internal: they get their partitions from what they are fed by,
and are made when they are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.core.limits import MAX_PARTITIONS_PER_TOPIC
from headrace.core.limits import MAX_STREAMS_TASKS as MAX_TASKS
from headrace.groups.topics import TopicIndex

NAMED_AT_MOST = 3


class Status(IntEnum):
    """What a heartbeat tells besides the tasks. The value is what travels."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Notice(NamedTuple):
    status: Status
    detail: str


class InternalTopic(NamedTuple):
    name: str
    partitions: int = 0
    """0: as many as those need who write to it."""
    replication_factor: int = 0
    """0: the default of the cluster."""
    configs: tuple[tuple[str, str], ...] = ()


class Copartition(NamedTuple):
    """Source topics that must have equally many partitions, as places in the lists of their subtopology."""

    sources: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    subtopology_id: str
    sources: tuple[str, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartitions: tuple[Copartition, ...] = ()

    def read(self) -> tuple[str, ...]:
        """All topics whose partitions make its tasks."""
        return self.sources + tuple(topic.name for topic in self.repartition_sources)


class Topology(NamedTuple):
    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def read(self) -> frozenset[str]:
        return frozenset(name for sub in self.subtopologies for name in sub.read())

    def needed(self) -> frozenset[str]:
        """Every topic that has to be there."""
        changelogs = (topic.name for sub in self.subtopologies for topic in sub.changelogs)
        return self.read().union(changelogs)

    def readers(self) -> dict[str, str]:
        """By topic, the subtopology that reads it."""
        return {name: sub.subtopology_id for sub in self.subtopologies for name in sub.read()}


class ConfiguredTopology(NamedTuple):
    """A topology with the topics that there are."""

    tasks: Mapping[str, int]
    """Per subtopology, in order; empty when the topics do not allow any."""
    subtopologies: tuple[Subtopology, ...]
    """With every partition count decided; empty when they can't be."""
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to be made."""
    problem: Notice | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    @property
    def stateful(self) -> frozenset[str]:
        return frozenset(sub.subtopology_id for sub in self.subtopologies if sub.changelogs)


class _Unsound(Exception):
    """The topics that there are do not fit together."""


# --- is it a topology ----------------------------------------------------------------------------------------


def complaint(topology: Topology) -> str | None:
    """Why no topics whatever could make it work."""
    ids = [sub.subtopology_id for sub in topology.subtopologies]
    if not ids:
        return "The topology has no subtopologies."
    if len(set(ids)) < len(ids):
        return "Two subtopologies have one id."
    written = {name for sub in topology.subtopologies for name in sub.repartition_sinks}
    for sub in topology.subtopologies:
        fault = _fault(sub, written)
        if fault is not None:
            return f"Subtopology {sub.subtopology_id}: {fault}"
    try:
        _partitions_of_repartitions(topology, lambda name: 1)
    except _Unsound:
        return "The partitions of a repartition topic depend on themselves: there is a loop in the topology."
    return None


def _fault(sub: Subtopology, written: set[str]) -> str | None:
    if not sub.read():
        return "it reads no topic."
    for topic in sub.changelogs:
        if topic.partitions:
            return f"changelog topic {topic.name} must have an undefined partition count, not {topic.partitions}."
    for topic in sub.repartition_sources:
        if not 0 <= topic.partitions <= MAX_PARTITIONS_PER_TOPIC:
            return f"repartition topic {topic.name} can't have {topic.partitions} partitions."
        if topic.name not in written and not topic.partitions:
            return f"repartition topic {topic.name} is read and never written to."
    for group in sub.copartitions:
        within = all(0 <= at < len(sub.sources) for at in group.sources)
        if not within or not all(0 <= at < len(sub.repartition_sources) for at in group.repartition_sources):
            return "a copartition group names a topic that is not there."
    return None


# --- with the topics that there are --------------------------------------------------------------------------


def configure(topology: Topology, index: TopicIndex) -> ConfiguredTopology:
    absent = sorted(
        {name for sub in topology.subtopologies for name in sub.sources if name not in index.topics}
    )
    if absent:
        detail = f"Source topics {_some(absent)} are missing."
        return ConfiguredTopology({}, (), problem=Notice(Status.MISSING_SOURCE_TOPICS, detail))
    try:
        decided = _decide(topology, index)
        missing = _missing(decided, index)
    except _Unsound as fault:
        return ConfiguredTopology({}, (), problem=Notice(Status.INCORRECTLY_PARTITIONED_TOPICS, str(fault)))
    counts = {topic.name: topic.partitions for sub in decided for topic in sub.repartition_sources}
    tasks = {
        sub.subtopology_id: max(_existing(index, name) or counts[name] for name in sub.read())
        for sub in sorted(decided)
    }
    problem = None
    if sum(tasks.values()) > MAX_TASKS:
        detail = f"The topology has {sum(tasks.values())} tasks with these topics; a group has at most {MAX_TASKS}."
        return ConfiguredTopology({}, (), problem=Notice(Status.INCORRECTLY_PARTITIONED_TOPICS, detail))
    if missing:
        detail = f"Internal topics are missing: {_some([topic.name for topic in missing])}"
        problem = Notice(Status.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(tasks, decided, missing, problem)


def _decide(topology: Topology, index: TopicIndex) -> tuple[Subtopology, ...]:
    counts = _partitions_of_repartitions(topology, lambda name: _existing(index, name))

    def count(name: str) -> int:
        return _existing(index, name) or counts[name]

    for sub in topology.subtopologies:
        for group in sub.copartitions:
            counts.update(_copartitioned(sub, group, count))
    decided = []
    for sub in topology.subtopologies:
        widest = max(count(name) for name in sub.read())
        decided.append(
            sub._replace(
                repartition_sources=tuple(
                    topic._replace(partitions=topic.partitions or counts[topic.name])
                    for topic in sub.repartition_sources
                ),
                changelogs=tuple(topic._replace(partitions=widest) for topic in sub.changelogs),
            )
        )
    return tuple(decided)


def _partitions_of_repartitions(topology: Topology, existing: Callable[[str], int | None]) -> dict[str, int]:
    """What is written to a repartition topic comes from sources, so it gets as many partitions as the widest of them; in
    rounds, because those may be repartition topics themselves. Raises _Unsound when some are never reached."""
    subs = topology.subtopologies
    counts = {
        topic.name: topic.partitions for sub in subs for topic in sub.repartition_sources if topic.partitions
    }
    waiting = {name for sub in subs for name in sub.repartition_sinks if name not in counts}
    readers: dict[str, list[Subtopology]] = {}
    for sub in subs:
        for topic in sub.repartition_sources:
            readers.setdefault(topic.name, []).append(sub)
    frontier: Iterable[Subtopology] = subs
    while waiting and frontier:
        found: dict[str, int] = {}
        for sub in frontier:
            widths = [counts.get(topic.name, 0) for topic in sub.repartition_sources]
            widest = max(widths + [existing(name) or 0 for name in sub.sources])
            if widest:
                for name in waiting.intersection(sub.repartition_sinks):
                    found[name] = max(widest, found.get(name, 0))
        counts.update(found)
        waiting.difference_update(found)
        # Only who reads what was found can find more: every line between subtopologies is gone along once.
        frontier = [sub for name in found for sub in readers.get(name, ())]
    if waiting:
        raise _Unsound(f"no partition count can be found for {_some(sorted(waiting))}")
    return counts


def _copartitioned(sub: Subtopology, group: Copartition, count: Callable[[str], int]) -> dict[str, int]:
    """The repartition topics of a copartition group, with the one partition count that all of it has."""
    outside = {sub.sources[at]: count(sub.sources[at]) for at in group.sources}
    inside = [sub.repartition_sources[at] for at in group.repartition_sources]
    fixed = {topic.name: topic.partitions for topic in inside if topic.partitions}
    given = outside or fixed
    if len(set(given.values())) > 1:
        named = ", ".join(f"{name} ({number})" for name, number in sorted(given.items()))
        raise _Unsound(f"Following topics do not have the same number of partitions: {named}")
    number = next(iter(given.values()), None) or max((count(topic.name) for topic in inside), default=0)
    for name, partitions in fixed.items():
        if partitions != number:
            raise _Unsound(
                f"Number of partitions {partitions} of repartition topic {name} doesn't match number of partitions "
                f"{number} of the source topic."
            )
    return {topic.name: number for topic in inside}


def _missing(decided: Iterable[Subtopology], index: TopicIndex) -> tuple[InternalTopic, ...]:
    wanted = {topic.name: topic for sub in decided for topic in (*sub.repartition_sources, *sub.changelogs)}
    for name, topic in sorted(wanted.items()):
        there = _existing(index, name)
        if there is not None and there != topic.partitions:
            raise _Unsound(
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {there}"
            )
    return tuple(topic for name, topic in sorted(wanted.items()) if name not in index.topics)


def _existing(index: TopicIndex, name: str) -> int | None:
    info = index.topics.get(name)
    return None if info is None else info.partition_count


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {rest} additional topics" if rest > 0 else "")
