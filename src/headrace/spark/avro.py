"""Codec: values in Avro, with the optional `fastavro`. The one format that is decoded record by record, so it is slow."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa

from headrace.spark.options import OptionError

_CONFLUENT_HEADER = 5
_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}


def _fastavro() -> Any:
    try:
        import fastavro  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise OptionError(
            "valueFormat=avro needs the package fastavro on the driver and the executors: pip install fastavro"
        ) from None
    return fastavro


def value_ddl(schema: str) -> str:
    """The Spark type of an Avro schema."""
    _fastavro()
    try:
        return _type(json.loads(schema))
    except json.JSONDecodeError as problem:
        raise OptionError(f"the Avro schema is not JSON: {problem}") from None


def _type(schema: Any) -> str:
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        if len(kinds) != 1:
            raise OptionError("an Avro union is supported only of null and one other type")
        return _type(kinds[0])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        inside = ", ".join(f"`{field['name']}`: {_type(field['type'])}" for field in schema["fields"])
        return f"struct<{inside}>"
    if kind == "array":
        return f"array<{_type(schema['items'])}>"
    if kind == "map":
        return f"map<string, {_type(schema['values'])}>"
    if isinstance(kind, dict | list):
        return _type(kind)
    if kind not in _PLAIN:
        raise OptionError(f'the Avro type "{kind}" is not supported')
    return _PLAIN[kind]


def parse_avro(raw: pa.Array, schema: str, result: pa.DataType) -> pa.Array:
    fastavro = _fastavro()
    parsed = fastavro.parse_schema(json.loads(schema))
    return pa.array([_parse_one(fastavro, parsed, one.as_py()) for one in raw], result)


def _parse_one(fastavro: Any, schema: Any, data: bytes | None) -> Any:
    """Null for what does not parse. A Confluent header (0 and four bytes of schema id) is stepped over."""
    if data is None:
        return None
    starts = (_CONFLUENT_HEADER, 0) if data[:1] == b"\0" and len(data) > _CONFLUENT_HEADER else (0,)
    for start in starts:
        stream = io.BytesIO(data[start:])
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception:  # noqa: S112 - whatever fastavro trips over, the bytes are not of this schema
            continue
        if stream.tell() == len(data) - start:
            return value
    return None
