"""A batch held open says the same as reading it whole, and refuses what that refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.batch import HEADER_BYTES, CorruptBatch, read_header
from headrace.records.build import Record, assemble, build_batch
from headrace.records.opened import OpenBatch
from headrace.records.read import iter_spans, plain_body, read_records
from headrace.records.rebuild import rebuild_batch

values = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        values,
        values,
        st.lists(st.tuples(st.text(max_size=5), values), max_size=2).map(tuple),
        st.integers(1_000, 2_000),
        st.just(-1),
    ),
    min_size=1,
    max_size=20,
)


@given(records, st.sampled_from([0, 1, 3, 4]), st.data())
def test_one_by_one_or_all_at_once(given_records: list[Record], codec: int, data: st.DataObject) -> None:
    batch = build_batch(given_records, codec=codec, base_offset=100, wall_ms=1_500)
    header = read_header(batch)
    body = plain_body(batch, 0, header, max_bytes=1 << 20)
    kept = [span for span in iter_spans(body, header) if data.draw(st.booleans())]
    for image in (batch, rebuild_batch(header, body, kept)):
        whole = {record.offset: record for record in read_records(image)}
        opened = OpenBatch(image, 0)
        assert len(opened) == len(whole)
        for offset in range(98, 100 + len(given_records) + 2):
            assert opened.find(offset) == whole.get(offset)


@given(st.binary(max_size=60), st.integers(1, 5))
def test_nonsense_is_refused(body: bytes, count: int) -> None:
    header = read_header(build_batch([Record(b"k", b"v")] * count, wall_ms=1))
    image = bytes(assemble(header, body))
    assert len(image) == HEADER_BYTES + len(body)
    try:
        opened = OpenBatch(image, 0)
    except CorruptBatch:
        return
    for offset in range(count):
        try:
            opened.find(offset)
        except CorruptBatch:
            pass


def test_a_record_that_is_cut_short() -> None:
    batch = build_batch([Record(b"k", b"v"), Record(b"k", b"v")], wall_ms=1)
    header = read_header(batch)
    with pytest.raises(CorruptBatch):
        OpenBatch(assemble(header, batch[HEADER_BYTES:-1]), 0)
