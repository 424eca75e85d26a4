from __future__ import annotations

import pytest

from headrace.records.positions import END, START, Anchor, Position, parse_position, parse_target

NOW_MS = 1_793_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", START),
        ("earliest", START),
        ("end", END),
        ("-10", Position(Anchor.LAST, 10)),
        ("42", Position(Anchor.OFFSET, 42)),
        ("@15m", Position(Anchor.SINCE, NOW_MS - 900_000)),
        ("@1h30m", Position(Anchor.SINCE, NOW_MS - 5_400_000)),
        ("@2026-11-01", Position(Anchor.SINCE, 1_793_491_200_000)),
        ("@2026-11-01T12:30:00+02:00", Position(Anchor.SINCE, 1_793_529_000_000)),
        ("@1793000000000", Position(Anchor.SINCE, 1_793_000_000_000)),
        ("@1793000000", Position(Anchor.SINCE, 1_793_000_000_000)),
    ],
)
def test_positions(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@pytest.mark.parametrize("text", ["", "middle", "@", "@soon", "@2026-13-01", "--5", "1.5"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_position(text, NOW_MS)


def test_a_group_is_also_moved_from_where_it_is() -> None:
    assert parse_target("+10", NOW_MS) == Position(Anchor.ON, 10)
    assert parse_target("-10", NOW_MS) == parse_position("-10", NOW_MS)
    for text in ("+", "++1", "+-1", "+²"):
        with pytest.raises(ValueError, match=r"\+10"):
            parse_target(text, NOW_MS)


@pytest.mark.parametrize("text", ["@1900-01-01", "@0001-01-01T00:00+23:59", "@900000w"])
def test_no_time_is_before_1970(text: str) -> None:
    """Negative ones are first and last on the wire."""
    assert parse_position(text, NOW_MS) == Position(Anchor.SINCE, 0)


def test_no_time_is_longer_than_the_wire() -> None:
    assert parse_position("@" + "9" * 40, NOW_MS).value < 1 << 63


@pytest.mark.parametrize(
    ("text", "offset"),
    [("start", 10), ("end", 30), ("-5", 25), ("-50", 10), ("12", 12), ("3", 10), ("99", 30), ("+4", 19), ("+50", 30), ("@1h", 30)],
)  # fmt: skip
def test_where_that_is_in_a_partition(text: str, offset: int) -> None:
    assert parse_target(text, NOW_MS).offset(10, 30, committed=15) == offset


def test_where_it_is_without_a_commit_and_by_time() -> None:
    assert parse_target("+4", NOW_MS).offset(10, 30) == 14
    assert parse_target("@1h", NOW_MS).offset(10, 30, at_time=21) == 21
