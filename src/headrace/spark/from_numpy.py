"""Codec: numpy columns as Arrow arrays, without a copy and without pandas.

`pyarrow.array` imports pandas to find out whether it was given any of it, and so do `pyarrow.scalar` (that is also
`fill_null(column, 0)` or `equal(column, "text")`) and `Array.to_numpy`: more than a second of CPU in a Python process, and Spark
starts several for a query. So plain rows are made of buffers here, and read from them in `sink_columns`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_KINDS = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}


def numbers(
    values: npt.NDArray[Any], kind: pa.DataType | None = None, nulls: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """A column of int32 or int64, or of a type that is stored like it (`kind`)."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        kind or _KINDS[values.dtype], values.size, [validity(nulls), pa.py_buffer(values)]
    )


def booleans(values: npt.NDArray[np.bool_]) -> pa.Array:
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(bits)])


def validity(nulls: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    if nulls is None or not nulls.any():
        return None
    return pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def repeated(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    raw = text.encode()
    bounds = (
        np.arange(0, (count + 1) * len(raw), len(raw), dtype=np.int32) if raw else np.zeros(count + 1, "i4")
    )
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(raw * count)])


def one_text(text: str) -> pa.Array:
    return repeated(text, 1)


def lists(offsets: npt.NDArray[np.int64], entries: pa.Array, kind: pa.DataType) -> pa.Array:
    """Row i is entries[offsets[i] : offsets[i + 1]]."""
    bounds = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(kind, offsets.size - 1, [None, bounds], children=[entries])
