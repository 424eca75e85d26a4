"""Codec: what `valueFormat` says about the bytes of a value: left alone, text, JSON with a schema, Avro.

JSON gives what Spark's from_json gives. Arrow parses a whole column at once; only where it meets something it does not take are
documents looked at one by one (`json_documents`), a few at a time. Each document is wrapped in an object under a name that
nobody can guess: no line can then begin or end in the middle of another's, and as many objects as there are lines means one
for each, so that nothing of one record appears under another. It also keeps a `null` from being the root of anything: Arrow's
parser ends the process by a signal there.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from headrace.spark.json_documents import Document

_WRAP = f"v{secrets.token_hex(8)}"
_FEW = 64
"""So many documents are looked at one by one; more are cut in halves first, so that one odd document costs little."""


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

    def is_sound(self, raw: pa.Array) -> list[bool]:
        """Which values are what the schema says. Those that are null are."""
        if self.format == "json" and self.schema is not None:
            return [text is None or _is_document(text, self.schema) for text in _texts(raw)]
        parsed = self.decode(raw.cast(self.raw_type))
        return [
            is_null or is_parsed
            for is_null, is_parsed in zip(
                raw.is_null().to_pylist(), parsed.is_valid().to_pylist(), strict=True
            )
        ]


def parse_json(texts: pa.Array, schema: pa.Schema) -> pa.Array:
    """A struct column; null where the text is null or nothing, and with nulls in it where it is something else."""
    if not schema.names or not _is_utf8(texts):
        return _one_by_one(texts, schema)
    # from_json trims nothing: a text of spaces is nothing too, and the odd way knows that.
    missing = pc.or_(pc.is_null(texts), pc.equal(pc.binary_length(pc.fill_null(texts, "")), 0))
    pieces = _parsed(pc.if_else(missing, "{}", texts), schema)
    found = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return pa.StructArray.from_arrays(
        found.flatten(), fields=list(schema), mask=pc.or_(missing, found.is_null())
    )


def _is_utf8(texts: pa.Array) -> bool:
    """Values are taken as text without a look; a parser should not meet what is none."""
    try:
        texts.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _parsed(documents: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    try:
        return [_parse_column(documents, schema)]
    except (pa.ArrowInvalid, ValueError):
        if len(documents) <= _FEW:
            return [_one_by_one(documents, schema)]
    half = len(documents) // 2
    return _parsed(documents[:half], schema) + _parsed(documents[half:], schema)


def _parse_column(documents: pa.Array, schema: pa.Schema) -> pa.Array:
    wrapped = pc.binary_join_element_wise(f'{{"{_WRAP}":', documents, "}", "")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(wrapped)], wrapped), "\n")
    kind = pa.struct(list(schema))
    table = pa_json.read_json(
        pa.BufferReader(lines.buffers()[2]),
        read_options=pa_json.ReadOptions(
            use_threads=False, block_size=max(1 << 20, len(lines.buffers()[2]) + 1)
        ),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema([(_WRAP, kind)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(documents):
        raise ValueError("a document is more or less than one object")
    found = table.column(_WRAP).combine_chunks()
    if found.null_count:
        raise ValueError("a document is null")
    return found.cast(kind)


def _texts(values: pa.Array) -> list[str | None]:
    """As Java reads bytes: what is no UTF-8 is replaced."""
    raw = values.cast(pa.binary()) if values.type != pa.binary() else values
    return [None if one is None else one.decode(errors="replace") for one in raw.to_pylist()]


def _one_by_one(texts: pa.Array, schema: pa.Schema) -> pa.Array:
    found: list[Any] = [None if text is None else Document(text).read(schema) for text in _texts(texts)]
    return pa.array(found, pa.struct(list(schema)))


def _is_document(text: str, schema: pa.Schema) -> bool:
    document = Document(text)
    return document.read(schema) is not None and document.is_sound


def parse_strictly(values: pa.Array, schema: pa.Schema) -> tuple[pa.Array, list[bool] | None]:
    """A struct column of binary values, and which of them are what the schema says (None: all of them). A field of another type
    is not bent to fit."""
    texts = pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)
    if _is_utf8(texts) and not values.null_count:
        try:
            return _parse_column(texts, schema), None
        except (pa.ArrowInvalid, ValueError):
            pass
    found, sound = [], []
    for text in _texts(values):
        document = Document("" if text is None else text, strict=True)
        fields = document.read(schema)
        found.append(fields)
        sound.append(text is None or (fields is not None and document.is_sound and document.is_at_end))
    return pa.array(found, pa.struct(list(schema))), sound
