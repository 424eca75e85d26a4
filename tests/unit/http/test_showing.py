"""Decision 0095: what the OpenAPI document shows of an answer is what is encoded; moments are added where there are some."""

from __future__ import annotations

import msgspec

from headrace.http.rest.forms.messages import Published, PublishedRecords
from headrace.http.rest.reading import answer
from headrace.http.rest.showing import shown


class Inner(msgspec.Struct, rename={"source": "from"}):
    source: str
    at_ms: int | None
    left: int | msgspec.UnsetType = msgspec.UNSET


class Outer(msgspec.Struct):
    name: str
    items: list[Inner]
    inner: Inner | None = None


def test_what_has_no_moment_is_encoded_as_it_is() -> None:
    sent = PublishedRecords(
        topic="t", records=[Published(partition=0, offset=7, message_id="m", duplicate=False)]
    )
    assert shown(sent) is sent
    assert answer(sent, 201).body == msgspec.json.encode(sent)


def test_moments_are_added_however_deep_they_are() -> None:
    found = Outer(
        "x", [Inner("a", 1_793_534_400_123), Inner("b", None, 5), Inner("c", 0)], Inner("d", 86_400_000)
    )
    assert msgspec.json.decode(answer(found).body) == {
        "name": "x",
        "items": [
            {"from": "a", "at": "2026-11-01T12:00:00.123Z", "at_ms": 1_793_534_400_123},
            {"from": "b", "at": None, "at_ms": None, "left": 5},
            {"from": "c", "at": None, "at_ms": 0},
        ],
        "inner": {"from": "d", "at": "1970-01-02T00:00:00.000Z", "at_ms": 86_400_000},
    }
