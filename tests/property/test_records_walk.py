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

KINDS = ("equal", "sizes", "small", "keys", "headers", "times", "import", "mixed", "large")
DECOY = bytes(build_batch([Record(None, b"", timestamp=0)] * 3, wall_ms=0))[61:]
"""What may lie in front of a batch and behind it in a connection's buffer: records, of all things."""


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
        elif kind == "import":
            time = dice.choice((0, 100, 20_000, 3_000_000, 9 * 10**9, -(10**15)))
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


def sure(body: bytes | bytearray, count: int) -> bool:
    """`is_regular`, which must not depend on where the body lies and what is around it."""
    answer = is_regular(bytes(body), count)
    large = memoryview(DECOY + body + 300 * DECOY)[len(DECOY) :][: len(body)]
    for lie in (
        bytearray(body),
        memoryview(bytes(body)),
        large,
        memoryview(bytearray(large.obj))[len(DECOY) :][: len(body)],
    ):
        assert is_regular(lie, count) == answer
    return answer


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
        assert sure(body, count) or b"h" in body, "what most producers send needs no closer look"
    boundaries = starts_of(bytes(body), count)
    for _ in range(6):
        spoiled = bytearray(body)
        spoil(dice, spoiled, boundaries)
        claimed = count + dice.choice((0, 0, 0, 1, -1))
        if claimed < 1:
            continue
        flaw = find_flaw(spoiled, claimed)
        assert (flaw is None) == readable(bytes(spoiled), claimed) or is_only_odd(flaw), flaw
        assert not sure(spoiled, claimed) or flaw is None, (kind, seed, flaw)


@pytest.mark.parametrize("count", [8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("size", [(40, 40), (100, 100), (70, 200)])
def test_long_batches(count: int, size: tuple[int, int]) -> None:
    """Offset deltas grow to three bytes on the way."""
    dice = random.Random(count)
    body = bytearray()
    for index in range(count):
        append_record(body, Record(None, bytes(dice.randint(*size))), 0, index)
    assert sure(body, count)
    for damaged in (5, 64, 8192, count - 1):
        if damaged >= count:
            continue
        spoiled = bytearray()
        for index in range(count):
            append_record(spoiled, Record(None, bytes(50)), 0, index if index != damaged else index + 1)
        flaw = find_flaw(spoiled, count)
        assert flaw == Flaw(damaged, f"offset delta {damaged + 1} where {damaged} was expected")
        assert not sure(spoiled, count)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_noise(data: bytes, count: int) -> None:
    flaw = find_flaw(data, count)
    assert (flaw is None) == readable(data, count) or is_only_odd(flaw)
    assert not sure(data, count) or flaw is None


@pytest.mark.parametrize("place", ["length", "key", "value", "header key", "header value"])
@pytest.mark.parametrize("claimed", [1, 3, 0x7F, 0x80, 0x81, 0xFF])
def test_a_length_that_is_none(place: str, claimed: int) -> None:
    """F9: -1, -2, -64, and what goes on in the next byte. Whatever it is taken for, no record ends there by chance."""
    for size in (0, 1, 60, 100, *range(8170, 8200)):
        body = bytearray()
        for index in range(20):
            record = bytearray()
            append_record(record, Record(b"k", bytes(size if index > 1 else 10), (("h", b"v"),)), 0, index)
            start = 1 if record[0] < 0x80 else 2 if record[1] < 0x80 else 3
            if index < 2:
                pass  # the first ones are always read with care
            elif place == "length":
                record[:start] = bytes((claimed,))
            else:
                record[
                    {"key": start + 3, "value": start + 5, "header key": -4, "header value": -2}[place]
                ] = claimed
            body += record
        assert not sure(body, 20) or find_flaw(body, 20) is None


def test_more_records_than_three_bytes_count() -> None:
    """An offset delta of four bytes must not be read as one of three (F9)."""
    assert not is_regular(bytes(8 << 20), (1 << 20) + 1)
