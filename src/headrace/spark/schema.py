"""Codec: the columns of the source, as Spark's Kafka source has them, and their Arrow types (trap 8: Spark is strict)."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from headrace.spark.options import OptionError, SourceOptions

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

_HEADERS_DDL = "headers array<struct<key:string,value:binary>>"
_PLAIN = ["topic string", "partition int", "offset bigint", "timestamp timestamp", "timestampType int"]
_COLUMNS = ["key binary", "value binary", *_PLAIN, _HEADERS_DDL]
_VALUE_TYPES = {"binary": "binary", "string": "string", "json": "string"}
RAW_DDL = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, records int, "
    "maxTimestamp timestamp, batch binary"
)
"""One row for each record batch, as it is on the wire."""


def source_ddl(options: SourceOptions) -> str:
    if options.raw:
        return RAW_DDL
    value = "binary"
    if options.value_format == "string":
        value = "string"
    elif options.value_format == "json":
        value = f"struct<{options.value_schema}>" if options.value_schema else "string"
    elif options.value_format == "avro":
        from headrace.spark.avro import value_ddl

        value = value_ddl(options.value_schema or "")
    columns = [f"key {options.key_format}", f"value {value}", *_PLAIN]
    return ", ".join(columns + ([_HEADERS_DDL] if options.include_headers else []))


def chosen_columns(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The columns of a schema, which a user may have cut down: nobody decodes or ships what is not in it.

    No DDL is parsed here: Spark's planner processes have no parser."""
    known = dict(column.split(" ", 1) for column in (RAW_DDL.split(", ") if options.raw else _COLUMNS))
    if not options.raw:
        known.update(key=options.key_format, value=_VALUE_TYPES.get(options.value_format, ""))
        if options.value_schema is not None:
            known["value"] = ""
    for field in schema.fields:
        if field.name not in known:
            raise OptionError(f'there is no column "{field.name}" here; there are {", ".join(known)}')
        wanted, given = known[field.name], field.dataType.simpleString()
        if wanted and given != wanted:
            raise OptionError(f'column "{field.name}" is {wanted}, not {given}')
        if field.name == "value" and options.value_format == "json" and options.value_schema is not None:
            check_json_type(field.dataType)
    return tuple(field.name for field in schema.fields)


_JSON_SCALARS = ("boolean", "integer", "long", "double", "string")


def check_json_type(kind: DataType, path: str = "value") -> None:
    """What this source reads as from_json reads it. Everything else is refused: half of its rules would be worse than none."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            check_json_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        check_json_type(kind.elementType, f"{path}[]")
    elif kind.typeName() not in _JSON_SCALARS:
        raise OptionError(
            f"valueFormat=json does not read {path} of type {kind.simpleString()}; it reads boolean, int, bigint, double, "
            "string, and structs and arrays of them. For others take valueFormat=string and from_json(value, …)"
        )
