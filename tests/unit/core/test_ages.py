"""Ages as people say them."""

from __future__ import annotations

import pytest

from headrace.core.units import format_age_ms


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0s"), (999, "0s"), (59_999, "59s"), (60_000, "1m"), (61_000, "1m 1s"), (3_600_000, "1h"), (3_661_000, "1h 1m"),
        (86_400_000, "1d"), (90_061_000, "1d 1h"), (86_460_000, "1d"), (-5, "0s"),
    ],
)  # fmt: skip
def test_an_age_is_said_as_people_say_it(ms: int, said: str) -> None:
    assert format_age_ms(ms) == said
