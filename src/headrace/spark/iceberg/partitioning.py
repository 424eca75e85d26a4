"""Codec: rows by the partition of the table that they belong to.

Files are written by tasks, and a file has one value of each partition field; which one is told to the driver, because it can't be read off the
bounds of a column for every transform (bucket has none)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import PrimitiveType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from headrace.spark.from_numpy import booleans
from headrace.spark.iceberg.partition_fields import WIDTHS, PartitionField


def transform_of(field: PartitionField) -> Transform[Any, Any]:
    if field.how in ("bucket", "truncate"):
        return BucketTransform(field.width) if field.how == "bucket" else TruncateTransform(field.width)
    kinds: dict[str, Any] = {
        "day": DayTransform, "hour": HourTransform, "identity": IdentityTransform,
    }  # fmt: skip
    found: Transform[Any, Any] = kinds[field.how]()
    return found


@dataclass(frozen=True, slots=True)
class Splitter:
    """Rows by the values of the partition fields; plain data, pickled to the tasks."""

    fields: tuple[PartitionField, ...] = ()
    kinds: tuple[PrimitiveType, ...] = ()
    """Iceberg's types of the columns."""

    def split(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        """(values of the partition fields, rows)."""
        if not table.num_rows:
            return
        values, codes = [], np.zeros(table.num_rows, dtype=np.int64)
        for field, kind in zip(self.fields, self.kinds, strict=True):
            some, numbers = _coded(table.column(field.field), field, kind)
            values.append(some)
            codes = codes * len(some) + numbers
        for code in np.unique(codes).tolist():
            key, rest = [], code
            for some in reversed(values):
                rest, at = divmod(rest, len(some))
                key.append(some[at])
            chosen = codes == code
            yield tuple(reversed(key)), table if chosen.all() else table.filter(booleans(chosen))


def _coded(column: pa.ChunkedArray, field: PartitionField, kind: PrimitiveType) -> tuple[list[Any], Any]:
    """The transformed values that there are, and for each row which one it has."""
    if field.how in WIDTHS and pa.types.is_timestamp(column.type) and not column.null_count:
        numbers = (
            column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_numpy()
            // WIDTHS[field.how]
        )
        found, places = np.unique(numbers, return_inverse=True)
        return found.tolist(), places
    encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
    transformed = transform_of(field).transform(kind)
    raw = [transformed(_internal(one)) for one in encoded.dictionary.to_pylist()]
    known = {value: at for at, value in enumerate(dict.fromkeys(raw))}
    places = np.array([known[value] for value in raw], dtype=np.int64)
    return list(known), places[encoded.indices.to_numpy(zero_copy_only=False)]


def _internal(value: Any) -> Any:
    """As Iceberg's transforms want it: moments and dates are numbers."""
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value
