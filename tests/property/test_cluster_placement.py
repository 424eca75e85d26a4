"""Placement: every partition on as many racks as possible, loads and leaders even, and a new broker moves the least."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.placement import Candidate, level, place, rank, replace_broker

topic_ids = st.binary(min_size=16, max_size=16)


@st.composite
def clusters(draw: st.DrawFn, max_brokers: int = 12) -> list[Candidate]:
    count = draw(st.integers(1, max_brokers))
    racks = draw(st.integers(0, 4))
    names: st.SearchStrategy[str | None] = (
        st.sampled_from([f"r{n}" for n in range(racks)]) if racks else st.none()
    )
    ids = draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count, unique=True))
    return [Candidate(broker, draw(names)) for broker in ids]


@given(topic_ids, clusters(), st.integers(1, 40), st.data())
def test_placements_are_sound(
    topic_id: bytes, brokers: list[Candidate], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(topic_id, range(partitions), factor, brokers)
    racks = {broker.id: broker.rack for broker in brokers}
    known = {rack for rack in racks.values() if rack is not None}
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        if known:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(known))
    assert place(topic_id, range(partitions), factor, brokers) == placed, "everyone comes to the same result"


@given(topic_ids, st.integers(1, 12), st.integers(1, 60), st.data())
def test_loads_are_even_without_racks(
    topic_id: bytes, count: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, count))
    placed = place(topic_id, range(partitions), factor, [Candidate(number) for number in range(count)])
    load = Counter(broker for replicas in placed for broker in replicas)
    share = -(-partitions * factor // count)
    assert max(load.values()) <= share + 1
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) <= -(-partitions // count) + 2


@given(topic_ids, clusters(8), st.integers(1, 40), st.data())
def test_a_new_broker_only_receives(
    topic_id: bytes, brokers: list[Candidate], partitions: int, data: st.DataObject
) -> None:
    """C3: nothing moves between the brokers that were there, beyond what evens out the old layout itself."""
    factor = data.draw(st.integers(1, len(brokers)))
    even = [Candidate(broker.id) for broker in brokers]
    placed = [list(replicas) for replicas in place(topic_id, range(partitions), factor, even)]
    for move in level(topic_id, placed, even):
        placed[move.partition][placed[move.partition].index(move.source)] = move.target
    assert level(topic_id, placed, even) == []
    joined = [*even, Candidate(2000)]
    moves = level(topic_id, placed, joined)
    assert all(move.target == 2000 for move in moves)
    assert len(moves) <= partitions * factor // len(joined) + 1, "its share, no more"
    assert len({move.partition for move in moves}) == len(moves)


@given(topic_ids, clusters(8), st.integers(1, 30), st.data())
def test_moves_never_cost_racks(
    topic_id: bytes, brokers: list[Candidate], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    racks = {broker.id: broker.rack for broker in brokers}
    ids = [broker.id for broker in brokers]
    current = [data.draw(st.permutations(ids))[:factor] for _ in range(partitions)]
    before = [len({racks[broker] for broker in replicas}) for replicas in current]
    for move in level(topic_id, current, brokers):
        replicas = current[move.partition]
        assert move.source in replicas and move.target not in replicas
        replicas[replicas.index(move.source)] = move.target
    after = [len({racks[broker] for broker in replicas}) for replicas in current]
    assert all(now >= then for now, then in zip(after, before, strict=True))


@given(topic_ids, clusters(8), st.integers(0, 50), st.data())
def test_a_broker_is_replaced_in_its_place(
    topic_id: bytes, brokers: list[Candidate], partition: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    (replicas,) = place(topic_id, [partition], factor, brokers)
    leaving = data.draw(st.sampled_from(replicas))
    others = [broker for broker in brokers if broker.id != leaving]
    result = replace_broker(topic_id, partition, replicas, leaving, others, Counter())
    if factor == len(brokers):
        assert result is None
        return
    assert result is not None
    kept = [(old, new) for old, new in zip(replicas, result, strict=True) if old != leaving]
    assert all(old == new for old, new in kept)
    assert leaving not in result and len(set(result)) == factor


def test_ranks_do_not_depend_on_the_process() -> None:
    """Brokers must agree; a salted hash would not."""
    assert rank(bytes(16), 3, 7) == 0xB451780B00CBD217
