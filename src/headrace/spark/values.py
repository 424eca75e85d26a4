"""Codec: what `valueFormat` says about the bytes of a value: left alone, text, JSON with a schema, Avro.

JSON is parsed by Arrow, a whole column at once. Only a column with a broken document in it is looked at one by one: the
broken ones become null, as Spark's from_json does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json


@dataclass(frozen=True, slots=True)
class ValueDecoder:
    format: str = "binary"
    schema: pa.Schema | None = None
    """Of the JSON object."""
    avro_schema: str | None = None
    result: pa.DataType | None = None

    @property
    def raw_type(self) -> pa.DataType:
        return pa.string() if self.format in ("string", "json") else pa.binary()

    @property
    def result_type(self) -> pa.DataType:
        return self.result if self.result is not None else self.raw_type

    def decode(self, raw: pa.Array) -> pa.Array:
        if self.format == "json" and self.schema is not None:
            return parse_json(raw, self.schema)
        if self.format == "avro":
            from headrace.spark.avro import parse_avro

            return parse_avro(raw, self.avro_schema or "", self.result_type)
        return raw


def parse_json(texts: pa.Array, schema: pa.Schema) -> pa.Array:
    """A struct column; null where the text is null or no object of this schema."""
    missing = pc.or_(pc.is_null(texts), pc.equal(pc.binary_length(pc.fill_null(texts, "")), 0))
    documents = pc.if_else(missing, "{}", texts)
    try:
        return _parse_column(documents, missing, schema)
    except (pa.ArrowInvalid, ValueError):
        return _parse_one_by_one(documents, missing, schema)


def _parse_column(documents: pa.Array, missing: pa.Array, schema: pa.Schema) -> pa.Array:
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(documents)], documents), "\n")
    table = pa_json.read_json(
        pa.BufferReader(lines.buffers()[2]),
        read_options=pa_json.ReadOptions(
            use_threads=False, block_size=max(1 << 20, len(lines.buffers()[2]) + 1)
        ),
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(documents):
        raise ValueError("a document is more or less than one object")
    return _struct(table.select(schema.names), missing, schema)


def _struct(table: pa.Table, missing: pa.Array, schema: pa.Schema) -> pa.Array:
    columns = [table.column(name).cast(schema.field(name).type).combine_chunks() for name in schema.names]
    return pa.StructArray.from_arrays(columns, fields=list(schema), mask=missing)


def _parse_one_by_one(documents: pa.Array, missing: pa.Array, schema: pa.Schema) -> pa.Array:
    """The slow way, for a column that has something in it that is not JSON."""
    good: list[Any] = []
    for text, absent in zip(documents, missing, strict=True):
        good.append(None if absent.as_py() else _parse_one(text.as_py(), schema))
    empty = pa.array([one is None for one in good])
    table = pa.Table.from_pylist([one or {} for one in good], schema)
    return _struct(table, empty, schema)


def _parse_one(text: str, schema: pa.Schema) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            return None
        pa.Table.from_pylist([found], schema)
        return found
    except (ValueError, pa.ArrowException):
        return None
