"""Facts to records and back; what can not be read is passed over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.plan import JournalRecord
from headrace.queues.commands import DeathReason, Outcome, Source
from headrace.queues.facts import (
    NO_LANE,
    Checkpointed,
    Deduplicated,
    Died,
    Doomed,
    ExtendedDurably,
    GivenBack,
    Grant,
    LeasedDurably,
    Positioned,
    Purged,
    Rescheduled,
    Returned,
    Settled,
    Sighting,
    SourceRemoved,
)
from headrace.queues.journal import (
    UnreadableRecord,
    decode_checkpoint_part,
    decode_dedup_page,
    decode_delta,
    decode_key,
    encode_fact,
)
from headrace.queues.replay import QueueReplay
from headrace.queues.snapshot import SnapshotError, decode_snapshot

PLACE = (Source("café", "t.1", 3), 41, 7)

DELTAS = [
    Positioned(*PLACE, 9),
    Settled(*PLACE, ((1, 2), (5, 9)), Outcome.GAP),
    Returned(*PLACE, (GivenBack(1, 3, 2, 500, 1_700_000_000_000), GivenBack(7, 8, 1, 0, 5))),
    Died(*PLACE, (Doomed(4, 5), Doomed(6, 1)), DeathReason.REJECTED, "HTTP 500 – no"),
    Purged(*PLACE, 1 << 62),
    Rescheduled(*PLACE, 4, 1 << 61),
    LeasedDurably(*PLACE, (Grant(1, 3, 2, 9, NO_LANE),), 30_000, 5 << 20, ""),
    ExtendedDurably(*PLACE, (4, 5, 9), 60_000),
]


@pytest.mark.parametrize("fact", DELTAS, ids=lambda fact: type(fact).__name__)
def test_round_trip(fact: Any) -> None:
    (record,) = encode_fact(fact)
    key = decode_key(record.key)
    assert (key.source, key.number) == (fact.source, fact.slot)
    assert record.value is not None and key.source is not None
    assert decode_delta(key.source, key.number, record.value) == fact


def test_owners_and_lanes_are_not_journaled() -> None:
    fact = LeasedDurably(*PLACE, (Grant(1, 3, 2, 9, 17),), 30_000, 5, "member")
    (record,) = encode_fact(fact)
    assert record.value is not None
    assert decode_delta(PLACE[0], 7, record.value) == LeasedDurably(
        *PLACE, (Grant(1, 3, 2, 9, NO_LANE),), 30_000, 5, ""
    )


def test_checkpoint_parts_and_their_surplus() -> None:
    records = encode_fact(Checkpointed(PLACE[0], 41, 1, (b"one", b"two"), 2))
    keys = [decode_key(record.key) for record in records]
    assert [(key.side, key.number) for key in keys] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert [record.value is None for record in records] == [False, False, True, True]
    assert records[1].value is not None
    assert decode_checkpoint_part(records[1].value) == (41, 2, b"two")


def test_dedup_pages() -> None:
    sightings = (Sighting(b"x" * 16, 5, 6), Sighting(b"y" * 16, 7, 8))
    page, forgotten = encode_fact(Deduplicated(PLACE[0], 4, sightings, (1,)))
    assert decode_key(page.key).number == 4 and decode_key(forgotten.key).number == 1
    assert page.value is not None and forgotten.value is None
    assert tuple(decode_dedup_page(page.value)) == sightings


def test_a_removed_source_leaves_no_key_behind() -> None:
    records = encode_fact(SourceRemoved(PLACE[0], 2, (1, 2), (9,)))
    assert all(record.value is None for record in records)
    assert len({record.key for record in records}) == len(records) == 2 + 3 + 1


@given(key=st.binary(max_size=40), value=st.one_of(st.none(), st.binary(max_size=60)))
def test_any_record_is_read_or_passed_over(key: bytes, value: bytes | None) -> None:
    QueueReplay().collect(JournalRecord(key, value))


@given(fact=st.sampled_from(DELTAS), cut=st.integers(0, 200), flip=st.integers(0, 10_000))
def test_a_damaged_delta_is_read_or_unreadable(fact: Any, cut: int, flip: int) -> None:
    (record,) = encode_fact(fact)
    assert record.value is not None
    value = bytearray(record.value[: len(record.value) - cut % len(record.value)])
    if value:
        value[flip % len(value)] ^= 0xFF
    try:
        decode_delta(PLACE[0], 0, bytes(value))
    except UnreadableRecord:
        pass


@given(image=st.binary(max_size=200))
def test_any_image_is_a_snapshot_or_is_not(image: bytes) -> None:
    try:
        decode_snapshot(image)
    except (SnapshotError, ValueError):
        pass
