"""Codec: the columns of a table: where a record was, then its value as bytes, as text, or as the columns of a JSON Schema.

A property named like one of ours gets an underscore behind it. What JSON Schema can say and a column can't (anyOf, no type, an
object of any properties) is refused with the name of the property: nothing is dropped in silence.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.iceberg.reasons import no_avro, no_document, no_text, reasons
from headrace.spark.schema import HEADERS, TIMESTAMP
from headrace.spark.values import parse_strictly

PLACE = pa.schema(
    [
        ("_topic_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", TIMESTAMP),
        ("_timestamp_type", pa.int32()),
        ("_key", pa.binary()),
        ("_headers", HEADERS),
        ("_schema_id", pa.int32()),
    ]
)
"""Where a record was, and which schema of a registry its value names; the first columns of every table."""


class SchemaProblem(ValueError):
    """The schema can't be made into columns; the text says why."""


DEAD = pa.schema(
    [
        *(field for field in PLACE if field.name != "_schema_id"),
        pa.field("_value", pa.binary()),
        pa.field("_reason", pa.string()),
    ]
)
"""Of the table of rows that were not what the schema says."""

SOURCE = {
    "_topic_partition": "partition", "_offset": "offset", "_timestamp": "timestamp",
    "_timestamp_type": "timestampType", "_key": "key", "_headers": "headers",
}  # fmt: skip
_HEADER = 5


@dataclass(frozen=True, slots=True)
class Columns:
    """What a table has for each record."""

    value_format: str = "binary"
    """binary, string, json or avro."""
    fields: pa.Schema | None = None
    """Of the JSON object or the Avro record: its own names."""
    keep_raw: bool = False
    lenient: bool = False
    """Rows that are not what the schema says are kept, with nulls for what is not."""
    avro: str = ""
    """The Avro schema that values are read as."""
    registry: str = ""
    """Where ids of schemas are looked up; values have Confluent's header then."""
    renames: tuple[tuple[str, str], ...] = ()
    """Fields whose column has another name, because their type has changed (`evolution`)."""

    def to_json(self) -> str:
        fields = (
            base64.b64encode(self.fields.serialize().to_pybytes()).decode() if self.fields is not None else ""
        )
        found = {
            name: getattr(self, name) for name in ("value_format", "keep_raw", "lenient", "avro", "registry")
        }
        return json.dumps({**found, "fields": fields, "renames": [list(one) for one in self.renames]})

    @classmethod
    def from_json(cls, text: str) -> Columns:
        given = json.loads(text)
        fields = given.pop("fields")
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(fields))) if fields else None
        return cls(
            **{**given, "fields": schema, "renames": tuple((old, new) for old, new in given["renames"])}
        )

    @property
    def schema(self) -> pa.Schema:
        found = list(PLACE)
        if self.fields is None:
            found.append(pa.field("value", pa.binary() if self.value_format == "binary" else pa.string()))
        else:
            found += [field.with_name(name) for field, name in zip(self.fields, self.names, strict=True)]
        return pa.schema(found + ([pa.field("_raw", pa.binary())] if self.keep_raw else []))

    @property
    def names(self) -> list[str]:
        """How the fields are called in the table."""
        taken = {*PLACE.names, "_raw", *(self.fields.names if self.fields is not None else [])}
        given = dict(self.renames)
        return [
            _free(field.name, taken)
            if field.name in (*PLACE.names, "_raw")
            else given.get(field.name, field.name)
            for field in self.fields or []
        ]

    def make(self, rows: pa.RecordBatch) -> tuple[pa.Table, pa.Table]:
        """(good rows, dead rows) of what the source has read with binary values."""
        place = [rows.column(SOURCE[name]) for name in SOURCE]
        value = rows.column("value")
        raw = [value] if self.keep_raw else []
        none = DEAD.empty_table()
        if self.value_format == "avro" and self.fields is not None:
            return self._of_avro(place, value, raw, rows)
        place.append(pa.nulls(rows.num_rows, pa.int32()))
        if self.registry and self.fields is not None:
            place[-1], value = _unframed(value)
        if self.fields is None:
            if self.value_format == "string":
                value, sound = _texts(value)
                return self._sorted_out(place, [value], raw, rows, sound)
            return pa.Table.from_arrays([*place, value, *raw], schema=self.schema), none
        parsed, sound = parse_strictly(value, self.fields)
        return self._sorted_out(place, parsed.flatten(), raw, rows, sound)

    def _of_avro(
        self, place: list[Any], value: pa.Array, raw: list[Any], rows: pa.RecordBatch
    ) -> tuple[pa.Table, pa.Table]:
        from headrace.spark.iceberg.avro_columns import parse_avro_rows
        from headrace.spark.iceberg.registry import schema_text

        writer = partial(schema_text, self.registry) if self.registry else None
        assert self.fields is not None
        parsed, ids, sound = parse_avro_rows(value, self.avro, pa.struct(list(self.fields)), writer)
        place.append(pa.array(ids, pa.int32()))
        return self._sorted_out(place, parsed.flatten(), raw, rows, None if all(sound) else sound)

    def _sorted_out(
        self,
        place: list[Any],
        values: list[Any],
        raw: list[Any],
        rows: pa.RecordBatch,
        sound: list[bool] | None,
    ) -> tuple[pa.Table, pa.Table]:
        good = pa.Table.from_arrays([*place, *values, *raw], schema=self.schema)
        if sound is None or self.lenient:
            return good, DEAD.empty_table()
        mask = pa.array(sound, pa.bool_())
        dead = rows.filter(pc.invert(mask))
        arrays = [dead.column(SOURCE[name]) for name in SOURCE]
        values = dead.column("value")
        told = reasons(values, self._explain())
        return good.filter(mask), pa.Table.from_arrays([*arrays, values, told], schema=DEAD)

    def _explain(self) -> Callable[[bytes], str]:
        """Says of one value what is wrong with it."""
        if self.fields is None:
            return no_text
        fields = self.fields
        if self.value_format == "avro":
            import fastavro

            from headrace.spark.iceberg.registry import schema_text

            reader = fastavro.parse_schema(json.loads(self.avro))

            def explain(raw: bytes) -> str:
                if not _is_framed(raw):
                    return no_avro(raw, reader, reader)
                number, writer = int.from_bytes(raw[1:_HEADER], "big"), reader
                if self.registry:
                    writer = fastavro.parse_schema(json.loads(schema_text(self.registry, number)))
                return no_avro(raw[_HEADER:], writer, reader)

            return explain
        framed = bool(self.registry)
        return lambda raw: no_document(raw[_HEADER:] if framed and _is_framed(raw) else raw, fields)


def _unframed(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(ids, documents) of values with Confluent's header: a zero and four bytes. What has none is left as it is."""
    ids, documents = [], []
    for raw in values.to_pylist():
        is_framed = raw is not None and _is_framed(raw)
        ids.append(int.from_bytes(raw[1:_HEADER], "big") if is_framed else None)
        documents.append(raw[_HEADER:] if is_framed else raw)
    return pa.array(ids, pa.int32()), pa.array(documents, pa.binary())


def _is_framed(raw: bytes) -> bool:
    """By Confluent's header: a zero and the four bytes of a schema's id."""
    return raw[:1] == b"\0" and len(raw) > _HEADER


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _texts(values: pa.Array) -> tuple[pa.Array, list[bool] | None]:
    """Bytes as text; those that are none are not sound."""
    try:
        return values.cast(pa.string()), None
    except pa.ArrowInvalid:
        sound, texts = [], []
        for one in values.to_pylist():
            try:
                texts.append(None if one is None else one.decode())
                sound.append(True)
            except UnicodeDecodeError:
                texts.append(None)
                sound.append(False)
        return pa.array(texts, pa.string()), sound


_SCALARS = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def from_json_schema(text: str) -> pa.Schema:
    """The columns of a JSON Schema of an object."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as problem:
        raise SchemaProblem(f"not JSON: {problem}") from None
    if (
        not isinstance(given, dict)
        or not isinstance(given.get("properties"), dict)
        or not given["properties"]
    ):
        raise SchemaProblem(
            'an object with "properties" is needed, as in {"properties": {"id": {"type": "integer"}}}'
        )
    return pa.schema(_fields(given["properties"]))


def _fields(properties: dict[str, Any]) -> list[pa.Field]:
    found = [pa.field(name, _kind(one, name)) for name, one in properties.items()]
    lowered = [field.name.lower() for field in found]
    clash = sorted({name for name in lowered if lowered.count(name) > 1})
    if clash:
        raise SchemaProblem(
            f"{', '.join(clash)}: names that differ in case only are one column to most engines"
        )
    return found


def _kind(given: Any, path: str) -> pa.DataType:
    if not isinstance(given, dict):
        raise SchemaProblem(f"{path}: a schema is an object")
    said = given.get("type")
    kinds = [one for one in (said if isinstance(said, list) else [said]) if one != "null"]
    if len(kinds) != 1 or kinds[0] is None:
        raise SchemaProblem(f'{path}: say one type besides null, as in {{"type": "string"}}')
    if kinds[0] in _SCALARS:
        return _SCALARS[kinds[0]]
    if kinds[0] == "array" and isinstance(given.get("items"), dict):
        return pa.list_(pa.field("element", _kind(given["items"], f"{path}[]")))
    if kinds[0] == "object" and given.get("properties"):
        return pa.struct(_fields(given["properties"]))
    if kinds[0] in ("array", "object"):
        raise SchemaProblem(
            f'{path}: say what is in it, with "{"items" if kinds[0] == "array" else "properties"}"'
        )
    raise SchemaProblem(f'{path}: "{kinds[0]}" is no type of JSON Schema')


def without_metadata(field: pa.Field) -> pa.Field:
    """Files are found by the names of their columns, as those that tasks write; ids are the table's business."""
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([without_metadata(one) for one in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(without_metadata(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(without_metadata(kind.key_field).type, without_metadata(kind.item_field).type)
    elif pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    return pa.field(field.name, kind, field.nullable)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """An older file has fewer columns."""
    for field in schema:
        if field.name not in table.schema.names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(schema.names).cast(schema)
