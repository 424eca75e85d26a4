"""W3C trace context: what is well-formed is passed on as it is; anything else is left out, however long or odd it may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.trace_context import (
    MAX_STATE_BYTES,
    TraceContext,
    context_of,
    trace_context,
)

TRACE, SPAN = b"0af7651916cd43dd8448eb211c80319c", b"b7ad6b7169203331"
PARENT = b"00-" + TRACE + b"-" + SPAN + b"-01"


def test_a_context_is_read_and_written_as_it_came() -> None:
    found = trace_context(PARENT, b"congo=t61rcWkgMzE,rojo@acme=00f067aa0ba902b7")
    assert found is not None
    assert (found.trace_id, found.span_id, found.flags) == (TRACE.decode(), SPAN.decode(), 1)
    assert found.headers() == (
        ("traceparent", PARENT),
        ("tracestate", b"congo=t61rcWkgMzE,rojo@acme=00f067aa0ba902b7"),
    )
    assert trace_context(PARENT) == TraceContext(PARENT)
    assert TraceContext(PARENT).http_headers() == {"traceparent": PARENT.decode()}


def test_a_later_version_may_say_more() -> None:
    later = b"cc" + PARENT[2:] + b"-what-the-future-will-be-like"
    assert trace_context(later) == TraceContext(later)
    assert trace_context(b"cc" + PARENT[2:] + b".what") is None


@pytest.mark.parametrize(
    "bad",
    [
        None,
        b"",
        b"traceparent",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        PARENT + b"-more",
        PARENT + b"\r\nx-evil: 1",
        PARENT + b"\n",
        PARENT + b", " + PARENT,
        PARENT.replace(TRACE, b"0" * 32),
        PARENT.replace(SPAN, b"0" * 16),
        PARENT.replace(TRACE, TRACE[:-1] + b"g"),
        b"cc" + PARENT[2:] + b"-" + b"x" * 100_000,
        "00-٠٠".encode(),
    ],
)
def test_what_is_no_context_is_none(bad: bytes | None) -> None:
    assert trace_context(bad) is None


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"no-value",
        b"UPPER=1",
        b"a=b\r\nx-evil: 1",
        b"a=\xff",
        b"a=" + b"x" * MAX_STATE_BYTES,
        b",".join(b"k%d=v" % number for number in range(33)),
    ],
)
def test_a_bad_state_is_left_out_and_the_trace_stays(bad: bytes) -> None:
    assert trace_context(PARENT, bad) == TraceContext(PARENT)


def test_of_a_record_the_first_counts() -> None:
    other = PARENT.replace(b"0af7", b"0af8")
    headers = (("tracestate", b"a=1"), ("Traceparent", b"x"), ("traceparent", PARENT), ("traceparent", other))
    assert context_of(headers) == TraceContext(PARENT, b"a=1")
    assert context_of((("traceparent", None),)) is None
    assert context_of(()) is None


@given(st.binary(max_size=300), st.none() | st.binary(max_size=600))
def test_nothing_raises_and_nothing_odd_gets_out(parent: bytes, state: bytes | None) -> None:
    for given_parent in (parent, PARENT + parent, PARENT):
        found = trace_context(given_parent, state)
        if found is not None:
            text = "".join(found.http_headers().values())
            assert text.isascii() and text.replace("\t", "").isprintable() and len(text) < 800
