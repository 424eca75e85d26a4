"""Quotas: which one applies, whose bucket it is, how long one waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.quotas import (
    CONSUMED,
    MAX_THROTTLE_MS,
    PRODUCED,
    REQUESTS,
    Bucket,
    Entity,
    Quotas,
    encode_values,
    entity_of,
    key_name,
    parse_key_name,
    value_problem,
)


def quotas(*entries: tuple[Entity, dict[str, float]]) -> Quotas:
    loaded = Quotas()
    loaded.load({key_name(entity): encode_values(values) for entity, values in entries})
    return loaded


PRECEDENCE: list[Entity] = [
    (("user", "u"), ("client-id", "c")),
    (("user", "u"), ("client-id", None)),
    (("user", "u"),),
    (("user", None), ("client-id", "c")),
    (("user", None), ("client-id", None)),
    (("user", None),),
    (("client-id", "c"),),
    (("client-id", None),),
]


@pytest.mark.parametrize("place", range(len(PRECEDENCE)))
def test_the_most_specific_one_applies(place: int) -> None:
    """Each of the eight, with everything less specific around it that allows nothing at all."""
    loaded = quotas(
        (PRECEDENCE[place], {PRODUCED: 1000.0}),
        *((entity, {PRODUCED: 0.001}) for entity in PRECEDENCE[place + 1 :]),
    )
    assert loaded.take(PRODUCED, "u", "c", 1000, 0) == 0
    assert loaded.take(PRODUCED, "u", "c", 500, 0) == 501


def test_without_a_quota_nothing_is_counted() -> None:
    assert not Quotas().active
    loaded = quotas(((("client-id", "c"),), {PRODUCED: 10.0}))
    assert loaded.active
    assert loaded.take(PRODUCED, "u", "other", 10**9, 0) == 0
    assert loaded.take(CONSUMED, "u", "c", 10**9, 0) == 0


def test_a_user_shares_its_bucket_and_a_default_gives_each_its_own() -> None:
    shared = quotas(((("user", "u"),), {PRODUCED: 100.0}))
    assert shared.take(PRODUCED, "u", "c1", 100, 0) == 0
    assert shared.take(PRODUCED, "u", "c2", 100, 0) > 0
    each = quotas(((("client-id", None),), {PRODUCED: 100.0}))
    assert each.take(PRODUCED, "u", "c1", 100, 0) == 0
    assert each.take(PRODUCED, "u", "c2", 100, 0) == 0


def test_request_time_is_a_percentage_of_one_core() -> None:
    loaded = quotas(((("client-id", "c"),), {REQUESTS: 5.0}))
    assert loaded.take(REQUESTS, "u", "c", 50.0, 0) == 0
    assert loaded.take(REQUESTS, "u", "c", 5.0, 0) == 101


def test_a_debt_outlives_a_change() -> None:
    loaded = quotas(((("client-id", "c"),), {PRODUCED: 100.0}))
    loaded.take(PRODUCED, "u", "c", 1_100, 0)
    loaded.load({key_name((("client-id", "c"),)): encode_values({PRODUCED: 500.0})})
    assert loaded.take(PRODUCED, "u", "c", 0, 0) == 2_001
    loaded.load({})
    assert not loaded.active and loaded.take(PRODUCED, "u", "c", 10**9, 0) == 0


def test_buckets_are_bounded() -> None:
    loaded = Quotas(max_buckets=10)
    loaded.load({key_name((("client-id", None),)): encode_values({PRODUCED: 1.0})})
    for number in range(1000):
        loaded.take(PRODUCED, "u", f"c{number}", 1, 0)
    assert len(loaded._buckets) <= 10 and len(loaded._matches) <= 12


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3_000)), min_size=1, max_size=60))
def test_whoever_waits_as_told_keeps_to_the_rate(steps: list[tuple[int, int]]) -> None:
    """Over any run: what was taken is at most the rate times the time, the first second's worth and the last request."""
    bucket = Bucket(1000.0, 0)
    now_ms = total = 0
    for pause_ms, amount in steps:
        now_ms += pause_ms
        assert total <= 1000 * now_ms / 1000 + 1000 + 3, "before this one is carried out"
        total += amount
        throttle_ms = bucket.take(amount, now_ms)
        assert 0 <= throttle_ms <= MAX_THROTTLE_MS
        now_ms += throttle_ms


names = st.one_of(st.none(), st.text(min_size=1, max_size=20).filter(lambda text: text.isprintable()))


@given(names, names)
def test_key_names_come_back(user: str | None, client_id: str | None) -> None:
    entity = entity_of([("client-id", client_id), ("user", user)])
    assert not isinstance(entity, str)
    assert parse_key_name(key_name(entity)) == entity == (("user", user), ("client-id", client_id))


def test_nobody_passes_for_the_default() -> None:
    assert key_name((("user", "<default>"),)) != key_name((("user", None),))
    assert parse_key_name(key_name((("user", "<default>"),))) == (("user", "<default>"),)


@pytest.mark.parametrize("parts", [[], [("ip", "10.0.0.1")], [("user", "a"), ("user", "b")], [("user", "")]])
def test_entities_that_are_none(parts: list[tuple[str, str | None]]) -> None:
    assert isinstance(entity_of(parts), str)


def test_values_that_are_none() -> None:
    assert value_problem(PRODUCED, 1.0) is None
    for key, value in (
        (PRODUCED, 0.0),
        (PRODUCED, -1.0),
        (PRODUCED, float("nan")),
        ("controller_mutation_rate", 1.0),
    ):
        assert value_problem(key, value) is not None
    broken = Quotas()
    broken.load({"user=a": b"{", "user=b": b"[]", "user=c": b'{"producer_byte_rate": "x"}', "?": b"{}"})
    assert not broken.active
