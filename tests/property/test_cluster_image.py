"""R3: whatever the watch does to the events, the image ends up as the coordinator is; X27: and survives any bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tiny_coordinator import KeyEvent, TinyCoordinator

from headrace.cluster import keys
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import (
    BrokerConfigs,
    BrokerRegistration,
    ControllerState,
    Fence,
    FenceReason,
    InvalidState,
    Life,
    PartitionState,
    TopicState,
    decode,
    encode,
)

IDS = [bytes([number]) * 16 for number in (1, 2, 3, 4)]
LIVES = {"a": IDS[:2], "b.c": IDS[2:]}
"""Ids are random, so no two topics ever share one; a topic that is created again has another."""


def values(key: str, draw: st.DrawFn) -> bytes:
    ref = keys.parse(key)
    assert ref is not None
    number = draw(st.integers(1, 3))
    match ref.kind:
        case keys.KeyKind.TOPIC:
            return encode(
                TopicState(draw(st.sampled_from(LIVES[ref.name])).hex(), 3, {"retention.ms": str(number)}, 0)
            )
        case keys.KeyKind.PARTITION:
            return encode(PartitionState((1, 2, 3), number, number, number, (1, 2, 3)))
        case keys.KeyKind.BROKER:
            return encode(BrokerRegistration("h", number, "h", number, f"i{number}"))
        case keys.KeyKind.FENCE:
            return encode(Fence(draw(st.sampled_from(list(FenceReason))), number))
        case keys.KeyKind.EPOCH:
            return encode(Life(f"i{number}"))
        case keys.KeyKind.CONTROLLER:
            return encode(ControllerState(number, number))
        case keys.KeyKind.BROKER_CONFIG:
            return encode(BrokerConfigs({"log.retention.ms": str(number)}))
    return b"opaque %d" % number


KEYS = [
    keys.topic("a"),
    keys.topic("b.c"),
    keys.CONTROLLER,
    keys.broker_config(None),
    keys.broker_config(1),
    keys.opaque("queues", "q"),
    *(keys.partition(topic_id, number) for topic_id in IDS for number in (0, 2)),
    *(make(broker) for broker in (1, 2) for make in (keys.broker, keys.fence, keys.epoch)),
]


@st.composite
def histories(draw: st.DrawFn) -> TinyCoordinator:
    store = TinyCoordinator()
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=40)):
        if draw(st.integers(0, 3)) == 0:
            store.delete(key)
        else:
            store.put(key, values(key, draw))
    return store


def seen(image: ClusterImage) -> object:
    """Everything the image says, by value."""
    topics = {
        name: (topic.state, topic.config, list(topic.partitions), topic.id)
        for name, topic in image.topics.items()
    }
    return (
        topics,
        {topic_id: image.topic_by_id(topic_id) is not None for topic_id in IDS},
        image.brokers,
        image.controller,
        image.opaque("queues"),
        image.layers(),
        image.colliding_topic("b_c"),
        sorted(image.orphan_partitions()),
        {key: image.mod_revision(key) for key in KEYS},
        [image.fence(broker) for broker in (1, 2)],
        [image.life(broker) for broker in (1, 2)],
    )


def truth(store: TinyCoordinator) -> object:
    image = ClusterImage(1)
    image.resync(store.snapshot(), store.revision)
    return seen(image)


@given(histories(), st.data())
def test_a_hostile_watch_does_no_harm(store: TinyCoordinator, data: st.DataObject) -> None:
    """Repeated and late events anywhere; each one is delivered in the end."""
    image = ClusterImage(1)
    for position in range(len(store.history)):
        for _ in range(data.draw(st.integers(0, 2))):
            image.apply(data.draw(st.sampled_from(store.history[: position + 1])))
        image.apply(store.history[position])
    assert seen(image) == truth(store)


@given(histories(), st.data())
def test_a_full_read_heals_everything(store: TinyCoordinator, data: st.DataObject) -> None:
    """Any part of the history, in any order, then one snapshot."""
    image = ClusterImage(1)
    for event in data.draw(st.lists(st.sampled_from(store.history or [KeyEvent("x", None, 1)]), max_size=30)):
        image.apply(event)
    image.resync(store.snapshot(), store.revision)
    assert seen(image) == truth(store)
    before = image.version
    for event in store.history:
        assert image.apply(event) == [], "nothing old comes back"
    assert image.version == before


@given(histories(), st.data())
def test_deltas_tell_the_whole_story(store: TinyCoordinator, data: st.DataObject) -> None:
    """Who only listens to the deltas knows the same topics and live brokers."""
    image = ClusterImage(1)
    topics: set[bytes] = set()
    live: set[int] = set()
    for event in store.history:
        for delta in image.apply(event):
            match type(delta).__name__:
                case "TopicCreated":
                    topics.add(delta.topic.id)  # type: ignore[union-attr]
                case "TopicGone":
                    topics.discard(delta.topic_id)  # type: ignore[union-attr]
                case "BrokerUp":
                    live.add(delta.broker.id)  # type: ignore[union-attr]
                case "BrokerDown":
                    live.discard(delta.broker_id)  # type: ignore[union-attr]
    assert live == {broker.id for broker in image.live_brokers()}
    assert topics >= {topic.id for topic in image.topics.values()}


@given(st.sampled_from(KEYS), st.binary(max_size=60), st.integers(1, 9))
def test_any_bytes_leave_the_image_whole(key: str, value: bytes, revision: int) -> None:
    image = ClusterImage(1)
    image.apply(KeyEvent(keys.topic("a"), encode(TopicState(IDS[0].hex(), 3, {}, 0)), 2))
    image.apply(KeyEvent(key, value, revision))
    assert image.topic("a") is not None or (key == keys.topic("a") and revision > 2)


@given(
    st.sampled_from(
        [PartitionState, TopicState, BrokerRegistration, Fence, Life, ControllerState, BrokerConfigs]
    ),
    st.one_of(
        st.binary(max_size=200),
        st.recursive(st.integers() | st.text() | st.none(), st.lists).map(repr).map(str.encode),
    ),
)
def test_decoding_gives_a_value_or_invalid_state(kind: type, value: bytes) -> None:
    try:
        decoded: Any = decode(kind, value)
    except InvalidState:
        return
    assert decode(kind, encode(decoded)) == decoded
