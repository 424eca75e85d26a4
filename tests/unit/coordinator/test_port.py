"""The port's own arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.port import Compare, KeyValue, prefix_end

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(texts, texts)
def test_prefix_end_bounds_exactly_what_starts_with_the_prefix(prefix: str, other: str) -> None:
    """In code points and in UTF-8 bytes alike."""
    for text in (other, prefix + other):
        end = prefix_end(prefix)
        inside = prefix <= text and (end is None or text < end)
        assert inside == text.startswith(prefix)
        raw_inside = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
        assert raw_inside == inside


def test_prefix_end_at_the_edges() -> None:
    assert prefix_end("") is None
    assert prefix_end("\U0010ffff") is None
    assert prefix_end("a\U0010ffff") == "b"
    assert prefix_end("\ud7ff") == "\ue000"


def test_an_absent_key_compares_as_zero_and_as_no_value() -> None:
    held = KeyValue("k", b"", 3, 5, 7)
    assert Compare.mod_revision("k", 0).holds(None) and not Compare.mod_revision("k", 0).holds(held)
    assert Compare.create_revision("k", 0).holds(None) and Compare.create_revision("k", 3).holds(held)
    assert Compare.mod_revision("k", 5).holds(held) and not Compare.mod_revision("k", 3).holds(held)
    assert Compare.lease("k", 0).holds(None) and Compare.lease("k", 7).holds(held)
    assert Compare.value("k", b"").holds(held) and not Compare.value("k", b"").holds(None)
