"""F54: how a record looks as JSON, the same at every door."""

from __future__ import annotations

import pytest

from headrace.records.record import Record
from headrace.records.shown import shown_bytes, shown_headers, shown_record


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), (b"", ""), ("né".encode(), "né"), (b"\xff\x00", {"base64": "/wA="})],
)
def test_text_as_it_is_and_other_bytes_marked(value: bytes | None, shown: object) -> None:
    assert shown_bytes(value) == shown


def test_a_header_that_comes_again_has_the_list_of_its_values() -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"2"), ("a", b"\xff"), ("b", b"x")]
    assert shown_headers(headers) == {"a": ["1", "2", {"base64": "/w=="}], "b": [None, "x"]}


def test_a_record_has_both_forms_of_its_time() -> None:
    record = Record(None, b"v", (("h", b"1"),), 1_700_000_000_123, 7)
    assert shown_record("t", 2, record) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": "2023-11-14T22:13:20.123Z",
        "timestamp_ms": 1_700_000_000_123,
        "key": None,
        "value": "v",
        "headers": {"h": "1"},
    }
