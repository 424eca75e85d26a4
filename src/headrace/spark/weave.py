"""Codec: columns of byte strings joined row by row into one, by Arrow's own loop: three times as fast as numpy's masks.

The same as `ragged.interleave`, for those who have Arrow; both share their columns without a copy (spark.md 3, encoder).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.columns.ragged import Ragged

_KIND = pa.large_binary()
# Not pa.scalar: see from_numpy.
_NOTHING = pa.Array.from_buffers(_KIND, 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]


def weave(columns: Sequence[Ragged]) -> Ragged:
    """Element i is columns[0][i] + columns[1][i] + ..., for columns of equal count."""
    if columns[0].offsets.size == 1:
        return Ragged(np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
    joined = pc.binary_join_element_wise(*map(_array, columns), _NOTHING)
    _, offsets, data = joined.buffers()
    return Ragged(
        np.frombuffer(data, dtype=np.uint8), np.frombuffer(offsets, dtype=np.int64)[: len(joined) + 1]
    )


def _array(column: Ragged) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(column.offsets)), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(_KIND, column.offsets.size - 1, buffers)
