from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.client.positions import END, START, Anchor, Position, parse_position, since

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


def test_a_time_without_a_zone_is_utc() -> None:
    assert since(datetime(2026, 11, 1)) == since(datetime(2026, 11, 1, tzinfo=UTC))
    east = timezone(timedelta(hours=2))
    assert since(datetime(2026, 11, 1, 2, tzinfo=east)) == since(datetime(2026, 11, 1, tzinfo=UTC))
