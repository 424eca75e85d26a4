"""Any records survive any codec; the reader never believes anything it should not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.batch import BatchHeader, CorruptBatch, read_header, scan, seal
from headrace.records.build import Record, append_record, build_batch
from headrace.records.compression import Codec, compress, inflate
from headrace.records.read import iter_spans, plain_body, read_control, read_records
from headrace.records.rebuild import rebuild_batch
from headrace.records.validate import keyless_record_indexes, validate_produced
from headrace.records.varint import append_varint, read_varint, read_varlong

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=4).map(tuple)
records = st.lists(
    st.builds(Record, maybe_bytes, maybe_bytes, headers, st.integers(0, 2**62), st.just(-1)),
    min_size=1,
    max_size=20,
)
codecs = st.sampled_from(list(Codec))
CAP = 1 << 20


@given(records, codecs, st.integers(0, 2**60))
def test_round_trip(values: list[Record], codec: Codec, base: int) -> None:
    data = build_batch(values, wall_ms=0, codec=codec, base_offset=base)
    assert read_records(data, max_bytes=CAP) == [
        record._replace(offset=base + index) for index, record in enumerate(values)
    ]


edge_deltas = st.integers(-70, 70) | st.integers(-(2**40), 2**40)
edge_sizes = st.integers(0, 70) | st.integers(4_030, 4_110) | st.integers(8_150, 8_200)


@given(
    st.none() | st.binary(max_size=70),
    st.none() | edge_sizes,
    st.lists(st.tuples(st.text(max_size=3), maybe_bytes), max_size=1).map(tuple),
    edge_deltas,
    edge_deltas,
)
def test_the_short_way_to_write_a_record_writes_what_the_long_way_does(
    key: bytes | None,
    size: int | None,
    given_headers: tuple[tuple[str, bytes | None], ...],
    time: int,
    place: int,
) -> None:
    value = None if size is None else b"v" * size
    fields = bytearray(1)
    append_varint(fields, time)
    append_varint(fields, place)
    for part in (key, value):
        append_varint(fields, -1 if part is None else len(part))
        fields += part or b""
    append_varint(fields, len(given_headers))
    for name, content in given_headers:
        for part in (name.encode("utf-8", "surrogateescape"), content):
            append_varint(fields, -1 if part is None else len(part))
            fields += part or b""
    expected = bytearray(b"before")
    append_varint(expected, len(fields))
    written = bytearray(b"before")
    append_record(written, Record(key, value, given_headers), time, place)
    assert written == expected + fields


@given(records, codecs)
def test_keyless_records_are_found(values: list[Record], codec: Codec) -> None:
    data = build_batch(values, wall_ms=0, codec=codec)
    header = validate_produced(data, produce_version=7, max_message_bytes=CAP)
    assert isinstance(header, BatchHeader)
    found = keyless_record_indexes(plain_body(data, 0, header, max_bytes=CAP), header)
    assert found == [index for index, record in enumerate(values) if record.key is None]


@given(records, codecs, st.data(), st.none() | st.integers(0, 2**62))
def test_rebuilding_keeps_exactly_the_chosen_records(
    values: list[Record], codec: Codec, data: st.DataObject, horizon: int | None
) -> None:
    batch = build_batch(values, wall_ms=0, codec=codec, base_offset=1000)
    header = read_header(batch)
    body = plain_body(batch, 0, header, max_bytes=CAP)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    spans = list(iter_spans(body, header))
    rebuilt = rebuild_batch(header, body, [spans[i] for i in chosen], delete_horizon_ms=horizon)
    everything = read_records(batch, max_bytes=CAP)
    assert read_records(rebuilt, max_bytes=CAP) == [everything[i] for i in chosen]
    assert read_header(rebuilt).last_offset == header.last_offset


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value: int) -> None:
    encoded = bytearray()
    append_varint(encoded, value)
    assert read_varlong(bytes(encoded), 0) == (value, len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_varint(bytes(encoded), 0) == (value, len(encoded))


def opens_or_refuses(data: bytes) -> None:
    """X10: the one invariant of every reader: a value or CorruptBatch."""
    try:
        for position, header in scan(data):
            try:
                read_records(data, position, max_bytes=4096)
            except CorruptBatch:
                pass
            try:
                read_control(data, position)
            except CorruptBatch:
                pass
            try:
                keyless_record_indexes(plain_body(data, position, header, max_bytes=4096), header)
            except CorruptBatch:
                pass
    except CorruptBatch:
        pass
    validate_produced(data, produce_version=9, max_message_bytes=4096)


@given(st.binary(max_size=200))
def test_noise_is_refused_quietly(data: bytes) -> None:
    opens_or_refuses(data)


@settings(max_examples=300)
@given(
    records,
    codecs,
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=6),
    st.booleans(),
)
def test_mutated_batches_with_a_right_crc(
    values: list[Record], codec: Codec, mutations: list[tuple[int, int]], control: bool
) -> None:
    """A hostile client computes the CRC too, so it protects nothing here."""
    batch = bytearray(build_batch(values, wall_ms=0, codec=codec))
    if control:
        batch[22] |= 0x20
    for position, value in mutations:
        index = 17 + position % (len(batch) - 17)
        batch[index] = value
    seal(batch, 0, len(batch))
    opens_or_refuses(bytes(batch))
    opens_or_refuses(bytes(batch[: len(batch) - mutations[0][0] % len(batch)]))


@settings(max_examples=300)
@given(
    codecs,
    st.binary(max_size=2000),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=5),
)
def test_mutated_compressed_data(codec: Codec, plain: bytes, mutations: list[tuple[int, int]]) -> None:
    """X11: damaged or not, the answer is at most the cap, or CorruptBatch."""
    packed = bytearray(compress(codec, plain))
    for position, value in mutations:
        if packed:
            packed[position % len(packed)] = value
    try:
        assert len(inflate(codec, packed, 1000)) <= 1000
    except CorruptBatch:
        pass


@given(codecs, st.binary(max_size=300))
def test_noise_as_compressed_data(codec: Codec, noise: bytes) -> None:
    for magic in (
        b"",
        b"\x04\x22\x4d\x18",
        b"\x28\xb5\x2f\xfd",
        b"\x1f\x8b\x08",
        b"\x82SNAPPY\x00" + bytes(8),
    ):
        try:
            assert len(inflate(codec, magic + noise, 10_000)) <= 10_000
        except CorruptBatch:
            pass
