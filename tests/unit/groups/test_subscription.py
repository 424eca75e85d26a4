"""The embedded consumer protocol: round trips, and nonsense that must not hurt."""

from __future__ import annotations

import importlib
import io

from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from subscriptions import encode_subscription

from headrace.groups.subscription import (
    MemberSubscription,
    encode_assignment,
    parse_assignment,
    parse_subscription,
    subscribed_topics,
)

TOPIC = st.text("abc.-_", min_size=1, max_size=8)
PARTITIONS = st.lists(
    st.tuples(TOPIC, st.lists(st.integers(0, 99), max_size=4).map(tuple)), max_size=3
).map(tuple)  # fmt: skip


@given(
    st.integers(0, 3),
    st.lists(TOPIC, max_size=4).map(tuple),
    PARTITIONS,
    st.integers(-1, 99),
    st.none() | TOPIC,
)
def test_subscriptions_round_trip(version, topics, owned, generation, rack):  # type: ignore[no-untyped-def]
    given_ = MemberSubscription(
        version,
        topics,
        owned if version >= 1 else (),
        generation if version >= 2 else -1,
        rack if version >= 3 else None,
    )
    raw = encode_subscription(given_)
    assert parse_subscription(raw) == given_
    assert subscribed_topics(raw) == topics


@given(
    st.integers(0, 3),
    st.lists(TOPIC, max_size=4).map(tuple),
    PARTITIONS,
    st.integers(-1, 99),
    st.none() | TOPIC,
    st.none() | st.binary(max_size=9),
)
def test_f41_subscriptions_and_assignments_as_kio_writes_and_reads_them(  # type: ignore[no-untyped-def]
    version, topics, owned, generation, rack, user_data
):
    """A second codec of our own for these, which only tests used, was compared with kio; this one was not."""
    theirs = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    values = {"topics": topics, "user_data": user_data}
    if version >= 1:
        pairs = (theirs.TopicPartition(topic=topic, partitions=numbers) for topic, numbers in owned)
        values["owned_partitions"] = tuple(pairs)
    values |= {"generation_id": generation} if version >= 2 else {}
    values |= {"rack_id": rack} if version >= 3 else {}
    buffer = io.BytesIO()
    entity_writer(theirs.ConsumerProtocolSubscription)(buffer, theirs.ConsumerProtocolSubscription(**values))
    parsed = parse_subscription(version.to_bytes(2, "big") + buffer.getvalue())
    assert parsed == MemberSubscription(
        version,
        topics,
        owned if version >= 1 else (),
        generation if version >= 2 else -1,
        rack if version >= 3 else None,
    )
    theirs = importlib.import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    assigned, _ = entity_reader(theirs.ConsumerProtocolAssignment)(encode_assignment(version, owned), 2)
    assert tuple((pair.topic, pair.partitions) for pair in assigned.assigned_partitions) == owned


@given(st.integers(0, 3), PARTITIONS)
def test_assignments_round_trip(version, partitions):  # type: ignore[no-untyped-def]
    assert parse_assignment(encode_assignment(version, partitions)) == partitions


@given(st.binary(max_size=60))
def test_nonsense_is_none(raw: bytes) -> None:
    parse_subscription(raw)
    subscribed_topics(raw)
    parse_assignment(raw)


def test_a_count_that_the_bytes_can_not_hold_allocates_nothing() -> None:
    assert subscribed_topics(b"\x00\x00\x7f\xff\xff\xff") is None
    assert parse_assignment(b"\x00\x00\x7f\xff\xff\xff") is None


def test_topics_are_read_whatever_a_client_wrote_after_them() -> None:
    raw = encode_subscription(MemberSubscription(3, ("t",)))
    assert subscribed_topics(raw[:-6]) == ("t",)
    assert parse_subscription(raw[:-6]) is None


def test_no_assignment_is_no_partitions() -> None:
    assert parse_assignment(b"") == ()
