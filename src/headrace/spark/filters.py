"""Machine: what a pushed-down filter spares: partitions and offsets before anything is fetched, batches before they are
decoded, rows before they reach the JVM.

Invariant: a filter that is reported as handled is handled exactly; everything else goes back to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import datasource as pushed  # 4.0 has no filters: they are looked for where one is met

from headrace.core.ids import TopicPartition
from headrace.spark.columns.decode import RecordColumns, header_columns
from headrace.spark.plan import OffsetRange
from headrace.spark.where import matching_rows

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOWHERE = TopicPartition("", -1)
_NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Bounds are inclusive; timestamps in microseconds."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_low: int | None = None
    offset_high: int | None = None
    time_low: int | None = None
    time_high: int | None = None
    key: bytes | None = None
    header: tuple[str, str] | None = None
    where: str = ""
    """In the filter language; the broker is told as well."""

    @property
    def is_empty(self) -> bool:
        """Whether rows need no look: offsets and partitions are settled by the plan."""
        bounds = (self.time_low, self.time_high, self.key, self.header)
        return not self.where and all(bound is None for bound in bounds)

    @property
    def newest_batch_before(self) -> int | None:
        """Batches whose newest record is older than this have nothing for us."""
        return self.time_low

    def keeps(self, tp: TopicPartition) -> bool:
        return (self.topics is None or tp.topic in self.topics) and (
            self.partitions is None or tp.partition in self.partitions
        )

    def cut(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        found = []
        for one in ranges:
            start = one.start if self.offset_low is None else max(one.start, self.offset_low)
            end = one.end if self.offset_high is None else min(one.end, self.offset_high + 1)
            if start < end and self.keeps(one.tp):
                found.append(one._replace(start=start, end=end))
        return found

    def select(self, columns: RecordColumns, tp: TopicPartition = _NOWHERE) -> RecordColumns:
        """The rows that pass. A few vector comparisons; only a key or header filter looks at bytes, and `where` at rows."""
        if self.where:
            columns = _rows(columns, matching_rows(columns, self.where, tp))
        keep = np.ones(columns.offsets.size, dtype=np.bool_)
        times = columns.timestamps * 1000
        if self.time_low is not None:
            keep &= times >= self.time_low
        if self.time_high is not None:
            keep &= times <= self.time_high
        if self.key is not None:
            keep &= _equal(columns.data, columns.key_starts, columns.key_ends, self.key) & ~columns.key_nulls
        if self.header is not None:
            keep &= _has_header(columns, *self.header)
        return _rows(columns, keep)


def _rows(columns: RecordColumns, keep: npt.NDArray[np.bool_]) -> RecordColumns:
    if keep.all():
        return columns
    return RecordColumns._make((columns.data, *(column[keep] for column in columns[1:])))


def _equal(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], wanted: bytes
) -> npt.NDArray[np.bool_]:
    """Which spans of `data` are exactly `wanted`: by length first, then byte by byte over those that are left."""
    found: npt.NDArray[np.bool_] = (ends - starts) == len(wanted)
    for index, byte in enumerate(wanted):
        left = np.flatnonzero(found)
        if not left.size:
            break
        found[left] = data[starts[left] + index] == byte
    return found


def _has_header(columns: RecordColumns, name: str, value: str) -> npt.NDArray[np.bool_]:
    headers = header_columns(columns)
    hit = _equal(columns.data, headers.key_starts, headers.key_ends, name.encode())
    hit &= (
        _equal(columns.data, headers.value_starts, headers.value_ends, value.encode()) & ~headers.value_nulls
    )
    hits = np.zeros(hit.size + 1, dtype=np.int64)
    np.cumsum(hit, out=hits[1:])
    found: npt.NDArray[np.bool_] = np.diff(hits[headers.list_offsets]) > 0
    return found


def push(filters: Sequence[Filter], into: RowFilter) -> tuple[RowFilter, list[Filter]]:
    """(what we do, what Spark has to do)."""
    left: list[Filter] = []
    for one in filters:
        pushed = _push_one(one, into)
        if pushed is None:
            left.append(one)
        else:
            into = pushed
    return into, left


def _push_one(one: Filter, into: RowFilter) -> RowFilter | None:
    attribute = getattr(one, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    name = attribute[0]
    if isinstance(one, pushed.IsNotNull):
        return into if name in _NEVER_NULL else None
    value = getattr(one, "value", None)
    if value is None:
        return None
    if isinstance(one, pushed.EqualTo | pushed.EqualNullSafe | pushed.In):
        values = list(value) if isinstance(one, pushed.In) else [value]
        return _push_equal(name, values, into)
    low = high = None
    number = _number(name, value)
    if number is None:
        return None
    if isinstance(one, pushed.GreaterThan | pushed.GreaterThanOrEqual):
        low = number + isinstance(one, pushed.GreaterThan)
    elif isinstance(one, pushed.LessThan | pushed.LessThanOrEqual):
        high = number - isinstance(one, pushed.LessThan)
    else:
        return None
    return _push_range(name, low, high, into)


def _push_equal(name: str, values: list[Any], into: RowFilter) -> RowFilter | None:
    if None in values:
        return None
    if name == "topic":
        wanted = frozenset(map(str, values))
        return replace(into, topics=wanted if into.topics is None else into.topics & wanted)
    if name == "partition":
        numbers = frozenset(map(int, values))
        return replace(into, partitions=numbers if into.partitions is None else into.partitions & numbers)
    if len(values) != 1:
        return None
    if name == "key":
        raw = values[0]
        # Two different keys at once: Spark finds the nothing that matches both.
        if not isinstance(raw, bytes | bytearray) or into.key not in (None, bytes(raw)):
            return None
        return replace(into, key=bytes(raw))
    number = _number(name, values[0])
    return None if number is None else _push_range(name, number, number, into)


def _number(name: str, value: Any) -> int | None:
    if name in ("offset", "partition") and isinstance(value, int):
        return value
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    return None


def _push_range(name: str, low: int | None, high: int | None, into: RowFilter) -> RowFilter | None:
    if name == "offset":
        return replace(
            into, offset_low=_highest(into.offset_low, low), offset_high=_lowest(into.offset_high, high)
        )
    if name == "timestamp":
        return replace(into, time_low=_highest(into.time_low, low), time_high=_lowest(into.time_high, high))
    return None


def _highest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _lowest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
