"""Codec: which records a request wants: `where` is our filter language, `contains` a plain word in key, value or a header (W23)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.http.messages import Request
from headrace.http.rest.reading import invalid
from headrace.records.build import Record
from headrace.records.filters import Filter, FilterInput, FilterProblem, compile_filter

MAX_WORD = 1_000


class Wanted(Protocol):
    def matches(self, tp: TopicPartition, record: Record) -> bool: ...


class RecordFilter(NamedTuple):
    accepts: Filter | None
    word: bytes
    """Lower case; empty: any."""

    def matches(self, tp: TopicPartition, record: Record) -> bool:
        if self.word and not _contains(record, self.word):
            return False
        return self.accepts is None or self.accepts.matches(as_input(tp, record))


def as_input(tp: TopicPartition, record: Record) -> FilterInput:
    return FilterInput(
        record.key, record.value, record.headers, record.timestamp, record.offset, tp.topic, tp.partition
    )


def wanted_records(request: Request) -> RecordFilter | None:
    """None: all of them."""
    accepts = filter_of(request)
    word = request.query.get("contains", "")
    if len(word) > MAX_WORD:
        raise invalid(f"contains has at most {MAX_WORD} characters")
    return RecordFilter(accepts, word.lower().encode()) if word or accepts is not None else None


def filter_of(request: Request) -> Filter | None:
    expression = request.query.get("where")
    if expression is None:
        return None
    try:
        return compile_filter(expression)
    except FilterProblem as problem:
        raise HeadraceError(ErrorKind.INVALID_FILTER, problem.detail, problem.pointed()) from None


def _contains(record: Record, word: bytes) -> bool:
    """Without regard to case, as far as that is the same for bytes: ASCII. Other letters are compared as they are."""
    if word in (record.value or b"").lower() or word in (record.key or b"").lower():
        return True
    return any(
        word in name.lower().encode() or word in (value or b"").lower() for name, value in record.headers
    )
