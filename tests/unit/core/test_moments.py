"""F54: moments are shown for people and for programs, everywhere; what is a moment and what a duration is decided once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.moments import MOMENTS, rfc3339, timed

ROOT = Path(__file__).parents[3]
DURATIONS = {
    "batch_wait_ms", "coordinator_silence_ms", "dedup_window_ms", "default_delay_ms", "duration_ms", "ends_in_ms", "grow_after_ms", "initial_ms", "lasts_ms", "loop_lag_ms", "max_lease_ms", "max_ms", "oldest_age_ms",
    "overlap_ms", "parts_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "ready_ms", "shrink_after_ms", "step_ms", "sync_p99_ms", "timeout_ms", "total_ms", "visibility_ms",
}  # fmt: skip
AXES = {"from_ms", "began_ms"}
"""Where a chart begins: nobody reads it."""


def schemas() -> list[tuple[str, dict[str, Any]]]:
    rest = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
    found = list(rest.items())
    for file in sorted((ROOT / "tests" / "unit" / "cli" / "golden").glob("*.json")):
        found += [
            (f"{file.stem} {name}", one) for name, one in json.loads(file.read_text())["row"]["$defs"].items()
        ]
    return found


def test_f54_every_time_is_a_moment_or_a_duration() -> None:
    undecided = {
        f"{kind}.{name}"
        for kind, schema in schemas()
        for name in schema.get("properties", {})
        if name.endswith("_ms") and name not in MOMENTS | DURATIONS | AXES
    }
    assert not undecided, "say in core/moments.py or here what they are"


def test_f54_no_time_is_shown_as_a_number_under_a_plain_name() -> None:
    for kind, schema in schemas():
        for name, one in schema.get("properties", {}).items():
            if f"{name}_ms" in MOMENTS and not kind.startswith("New"):
                assert one.get("type") != "integer", f"{kind}.{name}"


def test_f54_what_is_shown_as_a_moment_has_both_forms() -> None:
    both = [name for _, schema in schemas() for name in schema.get("properties", {}) if name in MOMENTS]
    alone = {
        f"{kind}.{name}"
        for kind, schema in schemas()
        for name in schema.get("properties", {})
        if name in MOMENTS and name[:-3] not in schema["properties"]
    }
    assert len(both) > 40
    assert alone <= {
        "CronSchedule.asked_ms",
        "CronSchedule.last_ms",
        "CronSchedule.sent_ms",
    }  # what is asked, not what is shown


@pytest.mark.parametrize(("at_ms", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1_793_534_400_123, "2026-11-01T12:00:00.123Z"), (-1, "1969-12-31T23:59:59.999Z"), (2**62, None), (-(2**62), None)])  # fmt: skip
def test_any_number_that_a_producer_wrote_can_be_shown(at_ms: int, text: str | None) -> None:
    assert rfc3339(at_ms) == text


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_every_moment_of_the_calendar_is_what_the_calendar_says(at_ms: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    assert rfc3339(at_ms) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_row_keeps_what_it_has_and_never_is_null() -> None:
    row = {
        "name": "x",
        "created_ms": 0,
        "since": "said",
        "since_ms": 5,
        "timeout_ms": 3,
        "headers": {"due_ms": 4},
    }
    assert timed(row) == {**row, "created": None}
