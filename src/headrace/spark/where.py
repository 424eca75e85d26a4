"""Codec: the filter language over columns: which rows of a task match.

The broker has filtered already when it is one of ours; another one sends everything, and this makes it right (D3). So the
loop over rows sees few of them where it matters.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from headrace.core.ids import TopicPartition
from headrace.records.filters import FilterInput, compile_filter
from headrace.spark.columns.decode import RecordColumns, header_columns

_compiled = lru_cache(maxsize=16)(compile_filter)


def matching_rows(columns: RecordColumns, expression: str, tp: TopicPartition) -> npt.NDArray[np.bool_]:
    wanted = _compiled(expression)
    data = columns.data.tobytes()
    keys = _fields(data, columns.key_starts, columns.key_ends, columns.key_nulls)
    values = _fields(data, columns.value_starts, columns.value_ends, columns.value_nulls)
    count = columns.offsets.size
    headers = _headers(data, columns) if wanted.needs.headers else [()] * count
    rows = zip(keys, values, headers, columns.timestamps.tolist(), columns.offsets.tolist(), strict=True)
    found = (wanted.matches(FilterInput(*row, tp.topic, tp.partition)) for row in rows)
    return np.fromiter(found, dtype=np.bool_, count=count)


def _fields(
    data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], nulls: npt.NDArray[np.bool_]
) -> list[bytes | None]:
    return [
        None if null else data[start:end]
        for start, end, null in zip(starts.tolist(), ends.tolist(), nulls.tolist(), strict=True)
    ]


def _headers(data: bytes, columns: RecordColumns) -> list[tuple[tuple[str, bytes | None], ...]]:
    found = header_columns(columns)
    names = [
        data[start:end].decode("utf-8", "surrogateescape")
        for start, end in zip(found.key_starts.tolist(), found.key_ends.tolist(), strict=True)
    ]
    values = _fields(data, found.value_starts, found.value_ends, found.value_nulls)
    places = found.list_offsets.tolist()
    return [
        tuple(zip(names[start:stop], values[start:stop], strict=True)) for start, stop in pairwise(places)
    ]
