"""Adapter: a whole topic as one Arrow table, in this process: for engines without Spark."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.arrow import ColumnLayout
from headrace.spark.iceberg.columns import PLACE, SOURCE, Columns
from headrace.spark.options import source_options
from headrace.spark.plan import ranges_between
from headrace.spark.positions import earliest, find_partitions, latest, topic_ids
from headrace.spark.reader import RangeReader
from headrace.spark.sync_client import SyncClient


def topic_rows(bootstrap: str, topic: str) -> pa.Table:
    """As a table without a schema has them."""
    options = source_options({"bootstrap": bootstrap, "subscribe": topic, "includeHeaders": "true"})
    names = (*SOURCE.values(), "value")
    columns = Columns("binary")
    with SyncClient(options.access) as client:
        partitions = find_partitions(client, options)
        start, end = earliest(client, partitions), latest(client, partitions)
        ranges = ranges_between(start, end, topic_ids(client, partitions))
    batches = [
        columns.make(rows)[0] for rows in RangeReader(options, names, ColumnLayout(names)).read(ranges)
    ]
    return pa.concat_tables([columns.schema.empty_table(), *batches])


def readable(rows: pa.Table, topic: str) -> pa.Table:
    """As `headrace sql` shows a topic: keys and values as text."""
    place = {"partition": "_topic_partition", "offset": "_offset", "timestamp": "_timestamp"}
    assert set(place.values()) <= set(PLACE.names)
    found = {"key": _text(rows["_key"]), "value": _text(rows["value"])}
    found.update({name: rows[column] for name, column in place.items()})
    return pa.table({**found, "topic": pa.array([topic] * rows.num_rows, pa.string())})


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode(errors="replace") for one in column.to_pylist()]
        return pc.cast(pa.chunked_array([pa.array(texts, pa.string())]), pa.string())
