"""Codec: why a value is not what the schema of a table says, in a sentence for whoever mends it (T6)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.spark.json_documents import Document

NOT_THE_SCHEMA = "the value is not what the schema says"
_EXPLAINED = 1000
"""Of one batch of rows: what is wrong with more than these is wrong with these, too, and looking at one takes its time."""
_CHARS = 300


def reasons(values: pa.Array, explain: Callable[[bytes], str]) -> pa.Array:
    return pa.array(
        [
            explain(raw)[:_CHARS] if raw is not None and at < _EXPLAINED else NOT_THE_SCHEMA
            for at, raw in enumerate(values.to_pylist())
        ],
        pa.string(),
    )


def no_text(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as problem:
        return f"not UTF-8 at byte {problem.start}"
    return NOT_THE_SCHEMA


def no_document(raw: bytes, fields: pa.Schema) -> str:
    """As `parse_strictly` reads it."""
    if (problem := no_text(raw)) != NOT_THE_SCHEMA:
        return problem
    document = Document(raw.decode(), strict=True)
    if document.read(fields) is None:
        return "nothing where a JSON object should be"
    if not document.is_sound:
        return document.problem
    return NOT_THE_SCHEMA if document.is_at_end else "something is behind the JSON object"


def no_avro(raw: bytes, writer: Any, reader: Any) -> str:
    """Both are parsed schemas; `raw` is without a header."""
    import fastavro

    stream = io.BytesIO(raw)
    try:
        fastavro.schemaless_reader(stream, writer, reader if writer is not reader else None)
    except Exception as problem:
        # Whatever fastavro trips over, the bytes are not of this schema.
        said = f"{type(problem).__name__} {problem}".strip()
        return f"not Avro of this schema, at byte {stream.tell()} of {len(raw)}: {said}"
    left = len(raw) - stream.tell()
    return f"{left} bytes are behind the Avro record" if left else "it does not fit the column's older type"
