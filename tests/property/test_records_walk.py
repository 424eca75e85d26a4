"""A5: the quick proof that a batch's records are all right, against the walk record by record, on good and spoiled ones (F9)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.batch import CorruptBatch, read_header
from headrace.records.build import Record, append_record, assemble, build_batch
from headrace.records.read import read_records
from headrace.records.walk import Flaw, find_flaw, is_regular

KINDS = ("equal", "sizes", "small", "keys", "headers", "times", "mixed", "large")


def body_of(dice: random.Random, kind: str, count: int, at: int = 0) -> bytearray:
    """Records such as one producer sends: mostly alike, in one respect not."""
    body = bytearray()
    size, key = dice.choice((0, 1, 50, 63, 64, 100, 900)), dice.choice((None, b"", b"k" * 12))
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if kind in ("headers", "mixed") or dice.random() < 0.2:
        headers = tuple(("h" * dice.randrange(70), b"v" * 20) for _ in range(dice.choice((1, 1, 2, 9))))
    time = 0
    for index in range(at, at + count):
        length, own_key, own_headers = size, key, headers
        if kind in ("sizes", "mixed"):
            length = size + dice.randrange(200)
        elif kind == "small":
            length = dice.randrange(130)
        elif kind == "large":
            length = dice.choice((8100, 8200, 9000))
        if kind in ("keys", "mixed"):
            own_key = dice.choice((None, b"k" * dice.randrange(80)))
        if kind == "mixed" and dice.random() < 0.3:
            own_headers = ()
        if kind == "headers" and headers and dice.random() < 0.5:
            own_headers = (("h", dice.choice((None, b"x" * dice.randrange(100)))),)
        if kind in ("times", "mixed"):
            time += dice.choice((-3, 0, 1, 40))
        append_record(body, Record(own_key, bytes(length), own_headers), time, index)
    return body


def spoil(dice: random.Random, body: bytearray, boundaries: list[int]) -> None:
    """Where it hurts: within the first bytes of a record, or in the last of the one before."""
    for _ in range(dice.choice((1, 1, 1, 2))):
        if not body:
            return
        at = min(max(0, dice.choice(boundaries) + dice.randrange(-2, 14)), len(body) - 1)
        how = dice.randrange(6)
        if how == 0:
            body[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            body[at] = dice.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF))
        elif how == 2:
            del body[at : at + dice.choice((1, 2, 7))]
        elif how == 3:
            body[at:at] = bytes(dice.choice((1, 2, 7)))
        elif how == 4:  # two bytes that make up for each other
            other = min(at + dice.randrange(1, 12), len(body) - 1)
            body[at], body[other] = (body[at] + 2) & 0xFF, (body[other] - 2) & 0xFF
        else:
            body[at : at + 1] = bytes((body[at] | 0x80, 0))  # the same number in a longer way, perhaps


def starts_of(body: bytes, count: int) -> list[int]:
    from headrace.records.read import read_span

    starts, at = [], 0
    for _ in range(count):
        starts.append(at)
        at = read_span(body, at).end
    return starts


def readable(body: bytes, count: int) -> bool:
    header = read_header(build_batch([Record(None, b"")] * count, wall_ms=0))
    try:
        found = read_records(assemble(header, body))
    except CorruptBatch:
        return False
    return [record.offset for record in found] == list(range(count))


def is_only_odd(flaw: Flaw | None) -> bool:
    """Refused for the sake of others: we could read it."""
    return flaw is not None and flaw.detail.startswith("attributes")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_quick_proof_agrees_with_the_walk(kind: str, seed: int) -> None:
    dice = random.Random(seed)
    count = dice.choice((1, 7, 8, 30, 63, 64, 65, 80, 200, 600))
    body = body_of(dice, kind, count)
    assert find_flaw(body, count) is None
    if "headers" not in (kind,) and kind not in ("mixed", "large"):
        assert is_regular(body, count) or b"h" in body, "what most producers send needs no closer look"
    boundaries = starts_of(bytes(body), count)
    for _ in range(6):
        spoiled = bytearray(body)
        spoil(dice, spoiled, boundaries)
        claimed = count + dice.choice((0, 0, 0, 1, -1))
        if claimed < 1:
            continue
        flaw = find_flaw(spoiled, claimed)
        assert (flaw is None) == readable(bytes(spoiled), claimed) or is_only_odd(flaw), flaw
        assert not is_regular(spoiled, claimed) or flaw is None, (kind, seed, flaw)


@pytest.mark.parametrize("count", [8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("size", [(40, 40), (100, 100), (70, 200)])
def test_long_batches(count: int, size: tuple[int, int]) -> None:
    """Offset deltas grow to three bytes on the way."""
    dice = random.Random(count)
    body = bytearray()
    for index in range(count):
        append_record(body, Record(None, bytes(dice.randint(*size))), 0, index)
    assert is_regular(body, count)
    for damaged in (5, 64, 8192, count - 1):
        if damaged >= count:
            continue
        spoiled = bytearray()
        for index in range(count):
            append_record(spoiled, Record(None, bytes(50)), 0, index if index != damaged else index + 1)
        flaw = find_flaw(spoiled, count)
        assert flaw == Flaw(damaged, f"offset delta {damaged + 1} where {damaged} was expected")
        assert not is_regular(spoiled, count)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_noise(data: bytes, count: int) -> None:
    flaw = find_flaw(data, count)
    assert (flaw is None) == readable(data, count) or is_only_odd(flaw)
    assert not is_regular(data, count) or flaw is None
