"""D3: what a view keeps of a batch is exactly what the filter says of each record, whatever the expression and the codec.

The model opens every record and asks the filter; the code under test searches bytes, steps over lengths and skips by tags.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.records.batch import CorruptBatch, crc_matches, read_header
from headrace.records.build import Record, build_batch
from headrace.records.filters import Filter, FilterInput, FilterProblem, compile_filter
from headrace.records.filters.prefilter import prefilter_of
from headrace.records.filters.syntax import parse
from headrace.records.read import iter_spans, plain_body, read_records
from headrace.records.selection import RecordPlaces, every_span, select_records, sift, skip_batch
from headrace.records.tag_mask import mask_of, tag_mask

TAGS = ["eu", "us", "e", "", "tag", "ü", "x" * 31, "x" * 32, "x" * 33, "x" * 80, '"', "\\", "a\nb"]
PLACE = RecordPlaces("orders", 3)

_text = st.sampled_from([*TAGS, "Ann", "an", "k1"])
_json = st.recursive(
    _text | st.integers(-3, 3) | st.booleans() | st.none() | st.floats(allow_nan=False, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@st.composite
def _record(draw: Any) -> Record:
    value = draw(st.one_of(st.none(), st.binary(max_size=8), _json))
    if not isinstance(value, bytes) and value is not None:
        value = json.dumps(value, ensure_ascii=draw(st.booleans())).encode()
    names = st.sampled_from(["tag", "h", "tagtag", "\x06tag"])
    values = st.one_of(st.none(), _text.map(str.encode), st.just(b"\xff"))
    headers = draw(st.lists(st.tuples(names, values), max_size=3))
    key = draw(st.one_of(st.none(), _text.map(str.encode), st.just(b"\xff\xfe")))
    return Record(key, value, tuple(headers), timestamp=1_000 + draw(st.integers(-5, 5)))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_literal = st.one_of(
    _text.map(_quoted), st.integers(-3, 3).map(str), st.sampled_from(["true", "false", "null"])
)
_path = st.sampled_from(
    [
        "tag",
        "key",
        "value",
        "header.h",
        "value.a",
        "value.b",
        "value.a.b",
        "value.a[0]",
        "offset",
        "timestamp",
        "size",
    ]
)


@st.composite
def _condition(draw: Any) -> str:
    path = draw(_path)
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return f"{path} {draw(st.sampled_from(['==', '!=', '<', '>=']))} {draw(st.integers(-3, 3))}"
    if kind == 1:
        return f"{draw(_text.map(_quoted))} == {path}" if path != "timestamp" else "timestamp > 999"
    if kind == 2:
        return f"{path} in ({', '.join(draw(st.lists(_literal, min_size=1, max_size=3)))})"
    if kind == 3:
        return f"{draw(st.sampled_from(['startswith', 'endswith', 'contains']))}({path}, {draw(_text.map(_quoted))})"
    if kind == 4:
        return f"{path} is {draw(st.sampled_from(['', 'not ']))}null"
    return f"lower({path}) == {draw(_text.map(_quoted))}"


_expression = st.recursive(
    _condition(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} and {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} or {two[1]})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=5,
)


def _model(batch: bytes, wanted: Filter) -> list[Record]:
    return [
        record
        for record in read_records(batch)
        if wanted.matches(FilterInput(*record[:3], record.timestamp, record.offset, *PLACE))
    ]


def _nothing() -> None: ...


@settings(max_examples=120, deadline=None)
@given(st.lists(_record(), min_size=1, max_size=12), _expression, st.sampled_from([0, 0, 1, 2, 3, 4]))
@example([Record(b"k", b'{"a": "\\u0065u"}')], 'value.a == "eu"', 0)
@example([Record(b"k", b'{"a": "eu"}'), Record(b"k", b"{}")], 'contains(value.a, "eu") or tag == "eu"', 0)
@example([Record(b"k", None, (("tag", b"eu"), ("tag", b"us")))], 'tag == "eu"', 0)
def test_a_batch_keeps_exactly_what_matches(records: list[Record], expression: str, codec: int) -> None:
    batch = build_batch(records, wall_ms=1_000, codec=codec, base_offset=70, leader_epoch=5)
    header = read_header(batch)
    wanted = compile_filter(expression)
    found = select_records(
        memoryview(batch), header, wanted, PLACE, max_bytes=1 << 20, with_tags=True, breathe=_nothing
    )
    expected = _model(batch, wanted)
    assert (read_records(found.data) if found.data else []) == expected
    assert found.records == len(expected)
    if found.data:
        assert found.last_match == expected[-1].offset
        kept = read_header(found.data)
        assert crc_matches(found.data, 0, kept)
        assert (kept.base_offset, kept.last_offset, kept.leader_epoch, kept.codec, kept.base_timestamp) == (
            header.base_offset, header.last_offset, 5, codec, header.base_timestamp
        )  # fmt: skip
    if wanted.needs.tags is not None and expected:
        assert found.tags & mask_of(wanted.needs.tags), "the tag index would have skipped this batch"


@settings(max_examples=80, deadline=None)
@given(st.lists(_record(), min_size=1, max_size=5), _expression)
def test_a_record_that_matches_contains_a_needle(records: list[Record], expression: str) -> None:
    promise = prefilter_of(parse(expression))
    if promise is None:
        return
    wanted = compile_filter(expression)
    for record in records:
        batch = build_batch([record], wall_ms=1_000)
        if _model(batch, wanted):
            body = plain_body(batch, 0, read_header(batch), max_bytes=1 << 20)
            assert any(needle in body for needle in promise.needles)


@given(st.lists(st.sampled_from(TAGS), max_size=5))
def test_the_mask_of_a_batch_covers_its_tags(tags: list[str]) -> None:
    records = [Record(b"k", b"v", (("a", b"1"), ("tag", tag.encode()), ("z", None))) for tag in tags]
    if not records:
        return
    batch = build_batch(records, wall_ms=1)
    body = plain_body(batch, 0, read_header(batch), max_bytes=1 << 20)
    for tag in tags:
        assert tag_mask(body) & mask_of([tag])


@settings(max_examples=80, deadline=None)
@given(
    st.binary(max_size=120), st.integers(0, 20), st.sampled_from(['tag == "eu"', "value.a > 1", 'key == "k"'])
)
@example(b"\x80" * 6, 2, 'tag == "eu"')
@example(b"\x06tag\x04eu" * 3, 3, 'tag == "eu"')
def test_hostile_bodies_do_no_harm(body: bytes, count: int, expression: str) -> None:
    """A batch whose CRC is right may hold anything: the broker never opened it."""
    good = build_batch([Record(b"k", b"v")], wall_ms=1)
    from headrace.records.build import assemble

    header = read_header(good)._replace(record_count=count, last_offset_delta=max(count - 1, 0))
    hostile = bytes(assemble(header, body))
    found = sift(
        hostile + good, compile_filter(expression), PLACE,
        max_bytes=1 << 20, with_tags=True, breathe=_nothing, enough=lambda: False,
    )  # fmt: skip
    assert found.next_offset == 1 and len(found.seen) == 2
    try:
        expected = len(_model(hostile, compile_filter(expression)))
    except CorruptBatch:
        return
    assert found.records - (expression == 'key == "k"') == expected


def _walked(walk: Any, body: bytes, header: Any) -> Any:
    try:
        return [tuple(span) for span in walk(body, header)]
    except CorruptBatch:
        return "corrupt"


_SIZES = st.sampled_from([0, 1, 30, 63, 64, 65, 8_191, 8_192, 20_000])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(_SIZES, _SIZES, st.sampled_from([0, -5, 63, 64, 9_000, 10**9]), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.binary(max_size=3),
    st.integers(0, 200),
)
def test_spans_are_the_same_however_they_are_read(
    shapes: list[tuple[int, int, int, bool]], damage: bytes, place: int
) -> None:
    records = [
        Record(
            b"k" * key if key else None,
            b"v" * value if value else None,
            (("h", None),) * headers,
            10**10 + time,
        )
        for key, value, time, headers in shapes
    ]
    batch = build_batch(records, wall_ms=1)
    header = read_header(batch)
    body = plain_body(batch, 0, header, max_bytes=1 << 20)
    assert _walked(every_span, body, header) == _walked(iter_spans, body, header) != "corrupt"
    hurt = body[:place] + damage + body[place + len(damage) :]
    assert _walked(every_span, hurt, header) == _walked(iter_spans, hurt, header)


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=7, max_size=40), st.integers(1, 4))
def test_spans_of_hostile_bytes_are_the_same_too(body: bytes, count: int) -> None:
    batch = build_batch([Record(None, b"")], wall_ms=1)
    header = read_header(batch)._replace(record_count=count, last_offset_delta=50)
    assert _walked(every_span, body, header) == _walked(iter_spans, body, header)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(
    ["tag", "value", ".", "a", "(", ")", "[", "]", "and", "or", "not", "in", "is", "null", "==", "<", ",", '"x"', "1",
     "1e9", "-", "lower", "contains", "timestamp", "'", "\\", "\ud800", "9" * 70, "٣"]), max_size=25).map(" ".join)))  # fmt: skip
def test_any_text_is_a_filter_or_a_problem(text: str) -> None:
    try:
        wanted = compile_filter(text)
    except FilterProblem as problem:
        assert problem.pointed()
        return
    assert wanted.matches(FilterInput(b"k", b'{"a": [1, "x"]}', (("tag", b"x"),), 5, 6, "t", 0)) in (
        True,
        False,
    )


@given(st.integers(0, 2**40), st.integers(1, 2**31 - 1), st.integers(-1, 50))
def test_a_skip_batch_covers_its_offsets(first: int, count: int, epoch: int) -> None:
    batch = skip_batch(first, first + count, epoch, 1_000)
    header = read_header(batch)
    assert crc_matches(batch, 0, header) and header.is_control and header.producer_id == -1
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (first, first + count, epoch)
    assert [record.offset for record in read_records(batch)] == [first + count - 1]
