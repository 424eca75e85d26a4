"""What the SDK sends to a queue, in REST's words, and how much of it goes into one request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import HeadraceError
from headrace.client.queue_records import MOST, MOST_CHARACTERS, in_requests, queue_record, size_of


def test_only_what_is_said_is_sent() -> None:
    assert queue_record(b"x", {}) == {"value": {"base64": "eA=="}}
    assert queue_record(None, {}) == {"value": None}
    assert queue_record("x", {"delay": 1.5, "key": "k"}) == {
        "value": {"base64": "eA=="}, "delay": "1500ms", "key": "k",
    }  # fmt: skip


def test_a_typing_error_is_no_option() -> None:
    with pytest.raises(TypeError, match="no option dely"):
        queue_record("x", {"dely": 1})  # type: ignore[typeddict-unknown-key]


def test_a_time_is_one_time_wherever_it_is_said() -> None:
    noon = datetime(2026, 11, 19, 12, 0, 0, 123456, UTC)
    east = noon.astimezone(timezone(timedelta(hours=5, minutes=30)))
    for moment in (noon, east, noon.replace(tzinfo=None)):
        assert queue_record("x", {"at": moment})["deliver_at"] == "2026-11-19T12:00:00.123Z"
    with pytest.raises(HeadraceError, match="not both"):
        queue_record("x", {"at": noon, "delay": 1})


@given(st.lists(st.one_of(st.none(), st.binary(max_size=5)), max_size=40), st.integers(1, 9))
def test_nothing_is_lost_or_moved_and_no_request_is_too_large(values: list[bytes | None], large: int) -> None:
    records = [queue_record(None if value is None else value * 50_000 * large, {}) for value in values]
    requests = list(in_requests(records))
    assert [record for some in requests for record in some] == records
    for some in requests:
        sizes = [len(record["value"]["base64"]) for record in some if record["value"]]
        assert len(some) == 1 or sum(sizes) <= MOST_CHARACTERS


def test_as_many_as_a_request_takes() -> None:
    records = [queue_record("x", {})] * (2 * MOST + 1)
    assert [len(some) for some in in_requests(records)] == [MOST, MOST, 1]


@given(st.binary(max_size=50))
def test_sizes_are_of_what_was_given(value: bytes) -> None:
    assert size_of(queue_record(value, {})) == len(value)
    assert size_of(queue_record(None, {})) == 0
