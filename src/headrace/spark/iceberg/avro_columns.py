"""Codec: columns of an Avro record, and its values as rows. Decoded record by record with fastavro, so it is slower than JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.spark.iceberg.columns import SchemaProblem

_HEADER = 5
_SCALARS = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "fixed": pa.binary(), "string": pa.string(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "timestamp-millis": pa.timestamp("us", tz="UTC"), "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"), "uuid": pa.string(),
}  # fmt: skip


def from_avro_schema(text: str) -> pa.Schema:
    """The columns of an Avro record."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as problem:
        raise SchemaProblem(f"not JSON: {problem}") from None
    if not isinstance(given, dict) or given.get("type") != "record" or not given.get("fields"):
        raise SchemaProblem('an Avro record with "fields" is needed')
    known: dict[str, Any] = {}
    return pa.schema(
        [pa.field(one["name"], _kind(one["type"], one["name"], known)) for one in given["fields"]]
    )


def _kind(given: Any, path: str, known: dict[str, Any]) -> pa.DataType:
    if isinstance(given, list):
        kinds = [one for one in given if one != "null"]
        if len(kinds) != 1:
            raise SchemaProblem(f"{path}: a union is a column only of null and one other type")
        return _kind(kinds[0], path, known)
    if isinstance(given, str):
        given = known.get(given, {"type": given})
    kind = given.get("type")
    if isinstance(kind, dict | list):
        return _kind(kind, path, known)
    if "name" in given:
        known[given["name"]] = given
    if kind == "record":
        if not given["fields"]:
            raise SchemaProblem(f"{path}: a record without fields is no column")
        return pa.struct(
            [(one["name"], _kind(one["type"], f"{path}.{one['name']}", known)) for one in given["fields"]]
        )
    if kind == "array":
        return pa.list_(pa.field("element", _kind(given["items"], f"{path}[]", known)))
    if kind == "map":
        return pa.map_(pa.string(), _kind(given["values"], f"{path}{{}}", known))
    logical = given.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(int(given["precision"]), int(given.get("scale", 0)))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind not in _SCALARS:
        raise SchemaProblem(f'{path}: "{kind}" is no type of Avro that makes a column')
    return _SCALARS[kind]


def parse_avro_rows(
    values: pa.Array, text: str, kind: pa.DataType, writer_of: Callable[[int], str] | None
) -> tuple[pa.Array, list[int | None], list[bool]]:
    """(a struct column, schema ids, which values are what the schema says). `writer_of` tells the schema that an id means; without it
    every value is written with `text`, and the id is only noted."""
    import fastavro

    reader = fastavro.parse_schema(json.loads(text))
    writers: dict[int, Any] = {}
    rows: list[Any] = []
    ids: list[int | None] = []
    sound: list[bool] = []
    for raw in values.to_pylist():
        row, schema_id, is_sound = None, None, raw is None
        if raw is not None:
            if raw[:1] == b"\0" and len(raw) > _HEADER:
                schema_id = int.from_bytes(raw[1:_HEADER], "big")
                if writer_of is not None and schema_id not in writers:
                    writers[schema_id] = fastavro.parse_schema(json.loads(writer_of(schema_id)))
                row, is_sound = _one(fastavro, raw[_HEADER:], writers.get(schema_id, reader), reader)
            if not is_sound and writer_of is None:
                schema_id = None
                row, is_sound = _one(fastavro, raw, reader, reader)
                if is_sound is False and raw[:1] == b"\0" and len(raw) > _HEADER:
                    schema_id = int.from_bytes(raw[1:_HEADER], "big")
        rows.append(row)
        ids.append(schema_id)
        sound.append(is_sound)
    try:
        return pa.array(rows, kind), ids, sound
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # A column that kept an older type: rows that do not fit are found one by one.
        fitted = [_fits(row, kind) for row in rows]
        kept = [row if fits else None for row, fits in zip(rows, fitted, strict=True)]
        return pa.array(kept, kind), ids, [one and fits for one, fits in zip(sound, fitted, strict=True)]


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def _one(fastavro: Any, raw: bytes, writer: Any, reader: Any) -> tuple[Any, bool]:
    stream = io.BytesIO(raw)
    try:
        row = fastavro.schemaless_reader(stream, writer, reader if writer is not reader else None)
    except Exception:
        # Whatever fastavro trips over, the bytes are not of this schema.
        return None, False
    return (row, True) if stream.tell() == len(raw) else (None, False)
