"""Primitive types: varints, lengths, tagged fields."""

from __future__ import annotations

import pytest

from headrace.core.limits import MAX_TAGGED_FIELDS
from headrace.wire.primitives import ProtocolError, Reader, Writer, read_uvarint, skip_tags, uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_uvarint_both_ways(value: int, data: bytes) -> None:
    assert uvarint(value) == data
    assert read_uvarint(b"?" + data, 1) == (value, 1 + len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 40])
def test_a_varint_of_more_than_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        read_uvarint(data, 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    assert skip_tags(b"\x02\x00\x01a\x63\x03abc" + b"rest", 0) == 9
    assert skip_tags(b"\x00rest", 0) == 1


def test_x10_tag_bombs_are_refused() -> None:
    """X10: neither many tags nor a long one is believed."""
    with pytest.raises(ProtocolError, match="too many"):
        skip_tags(uvarint(MAX_TAGGED_FIELDS + 1) + bytes(2 * MAX_TAGGED_FIELDS + 2), 0)
    with pytest.raises(ProtocolError, match="too many"):
        skip_tags(uvarint(500) + bytes(20), 0)
    with pytest.raises(ProtocolError, match="longer than the message"):
        skip_tags(b"\x01\x00\x7fabc", 0)


@pytest.mark.parametrize("flexible", [True, False])
def test_reader_reads_what_writer_wrote(flexible: bool) -> None:
    writer = Writer(flexible=flexible)
    writer.int8(-1)
    writer.int16(-2)
    writer.int32(-3)
    writer.int64(-4)
    writer.string("né")
    writer.string(None)
    writer.record_data(b"abc")
    writer.record_data(None)
    writer.count(2)
    writer.raw(b"\x01\x02")
    writer.tags([(3, b"xy")])
    reader = Reader(writer.join(), flexible=flexible)
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -2, -3, -4)
    assert (reader.string(), reader.nullable_string()) == ("né", None)
    assert (reader.nullable_bytes(), reader.nullable_bytes()) == (b"abc", None)
    assert reader.array(1, Reader.int8) == [1, 2]
    seen: list[bytes] = []
    reader.tags({3: lambda inner: seen.append(bytes(inner.slice(2)))})
    assert seen == ([b"xy"] if flexible else [])
    reader.finish()


def test_reader_refuses_what_is_not_there() -> None:
    for read in (
        Reader.int8,
        Reader.int16,
        Reader.int32,
        Reader.int64,
        Reader.uuid,
        Reader.uvarint,
        Reader.tags,
    ):
        with pytest.raises(ProtocolError):
            read(Reader(b""))
    with pytest.raises(ProtocolError, match="claimed"):
        Reader(b"\x09ab").string()
    with pytest.raises(ProtocolError, match="null"):
        Reader(b"\x00").string()
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(b"\x02\xff").string()
    with pytest.raises(ProtocolError, match="claimed"):
        Reader(b"\x7f\xff\xff\xff", flexible=False).count(1)
    with pytest.raises(ProtocolError, match="null"):
        Reader(b"\xff\xff\xff\xff", flexible=False).array(1, Reader.int8)
    with pytest.raises(ProtocolError, match="left over"):
        Reader(b"x").finish()


def test_a_known_tag_must_fill_its_length() -> None:
    with pytest.raises(ProtocolError, match="left over"):
        Reader(b"\x01\x00\x03abc").tags({0: lambda inner: None})
    with pytest.raises(ProtocolError, match="tagged fields"):
        Reader(b"").tags({0: lambda inner: None})
