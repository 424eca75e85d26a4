"""Machine: an even load over the brokers of a whole cluster: replicas first, then who leads (F48).

Each topic is made even by itself (placement.level); what is left over is evened out between topics, because many topics of one
partition each are even one by one, and can still leave a new broker with nothing. A step between topics never
makes one of them less even than it was.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.cluster.placement import Candidate, keeps_racks, level, rank, widest_gap

Topics = Mapping[bytes, list[list[int]]]
"""Topic id -> for each partition its replicas, the preferred leader first. Changed in place."""


class _Place(NamedTuple):
    topic_id: bytes
    partition: int


def balance(topics: Topics, brokers: Sequence[Candidate]) -> None:
    """The fewest moves of replicas after which all brokers hold their share, and then the first replicas evenly."""
    for topic_id, assignment in topics.items():
        for move in level(topic_id, assignment, brokers):
            replicas = assignment[move.partition]
            replicas[replicas.index(move.source)] = move.target
    _level_between_topics(topics, brokers)
    _level_leaders(topics, {broker.id for broker in brokers})


# -- replicas ---------------------------------------------------------------------------------------------------------


def _level_between_topics(topics: Topics, brokers: Sequence[Candidate]) -> None:
    racks = {broker.id: broker.rack for broker in brokers}
    of_topic = {
        topic_id: Counter(broker for replicas in assignment for broker in replicas)
        for topic_id, assignment in topics.items()
    }
    load = Counter(dict.fromkeys(racks, 0))
    for counts in of_topic.values():
        load.update({broker: count for broker, count in counts.items() if broker in racks})

    def can_move(place: _Place, source: int, target: int) -> bool:
        replicas = topics[place.topic_id][place.partition]
        counts = of_topic[place.topic_id]
        return (
            source in replicas
            and target not in replicas
            and counts[source] > counts[target]
            and keeps_racks(replicas, source, target, racks)
        )

    blocked: set[tuple[int, int]] = set()
    while (widest := widest_gap(load, blocked)) is not None:
        source, target = widest
        movable = [place for place in _places(topics) if can_move(place, source, target)]
        if not movable:
            blocked.add((source, target))
            continue
        movable.sort(key=lambda place: -rank(place.topic_id, place.partition, target))
        for place in movable:  # until this pair is even: others may be the worst by then
            if load[source] - load[target] <= 1:
                break
            if not can_move(place, source, target):
                continue
            replicas = topics[place.topic_id][place.partition]
            replicas[replicas.index(source)] = target
            for counts in (of_topic[place.topic_id], load):
                counts[source] -= 1
                counts[target] += 1


# -- leaders ----------------------------------------------------------------------------------------------------------


def _level_leaders(topics: Topics, live: set[int]) -> None:
    """Reorder replicas. A partition whose first replica is away keeps it: the broker may come back."""
    of_topic = {
        topic_id: Counter(replicas[0] for replicas in assignment) for topic_id, assignment in topics.items()
    }
    for topic_id, assignment in topics.items():
        places = [_Place(topic_id, number) for number in range(len(assignment))]
        _even_out(topics, live, places, of_topic, lambda place, leader, other: True)
    _even_out(
        topics,
        live,
        list(_places(topics)),
        of_topic,
        lambda place, leader, other: of_topic[place.topic_id][leader] > of_topic[place.topic_id][other],
    )


def _even_out(
    topics: Topics,
    live: set[int],
    places: Sequence[_Place],
    of_topic: Mapping[bytes, Counter[int]],
    may: Callable[[_Place, int, int], bool],
) -> None:
    """Hand leaderships on along a chain of brokers, from one that leads most to one that leads least, until no chain helps."""
    led: dict[int, list[_Place]] = {broker: [] for broker in live}
    for place in places:
        leader = topics[place.topic_id][place.partition][0]
        if leader in live:
            led[leader].append(place)
    while True:
        chain = next(_chains(topics, led, may), None)
        if chain is None:
            return
        for place, leader, other in chain:
            replicas = topics[place.topic_id][place.partition]
            at = replicas.index(other)
            replicas[0], replicas[at] = replicas[at], replicas[0]
            led[leader].remove(place)
            led[other].append(place)
            of_topic[place.topic_id][leader] -= 1
            of_topic[place.topic_id][other] += 1


_Step = tuple[_Place, int, int]


def _chains(
    topics: Topics, led: Mapping[int, Sequence[_Place]], may: Callable[[_Place, int, int], bool]
) -> Iterator[list[_Step]]:
    """From the busiest broker on: the shortest chain to one that leads at least two fewer."""
    for start in sorted(led, key=lambda broker: (-len(led[broker]), broker)):
        came_by: dict[int, _Step | None] = {start: None}
        waiting = deque([start])
        while waiting:
            broker = waiting.popleft()
            if len(led[start]) - len(led[broker]) > 1:
                yield list(_path(came_by, broker))[::-1]
                break
            for place in led[broker]:
                for other in topics[place.topic_id][place.partition][1:]:
                    if other in led and other not in came_by and may(place, broker, other):
                        came_by[other] = (place, broker, other)
                        waiting.append(other)


def _path(came_by: Mapping[int, _Step | None], end: int) -> Iterator[_Step]:
    step = came_by[end]
    while step is not None:
        yield step
        step = came_by[step[1]]


def _places(topics: Topics) -> Iterable[_Place]:
    return (
        _Place(topic_id, number)
        for topic_id, assignment in topics.items()
        for number in range(len(assignment))
    )
