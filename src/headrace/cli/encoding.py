"""Command: JSON values as what a schema of the registry says: Avro, JSON Schema, Protobuf, with the id in front."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.cli.decoding import Resolve, avro_schema, protobuf_pool, referred, schema_of
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import HttpLink, part
from headrace.cli.sending import OutgoingLine
from headrace.schemas.framing import framed
from headrace.schemas.model import BadSchema, Schema

Write = Callable[[Any], bytes]
FIRST_MESSAGE = b"\0"
"""Of a Protobuf file."""


class Encoder:
    def __init__(self, http: HttpLink, subject: str) -> None:
        """By the latest version of the subject."""
        found = http.ask("GET", f"/schemas/subjects/{part(subject)}/versions/latest")
        schema = schema_of(found)
        self._id = int(found["id"])
        self._of = f"{subject} version {found['version']}"
        try:
            self._write = _writer(schema, lambda reference: referred(http, reference))
        except BadSchema as problem:
            raise Failure(Exit.FAILED, f"the schema {self._of} can't be read: {problem}") from None

    def encoded(self, lines: Iterator[OutgoingLine]) -> Iterator[OutgoingLine]:
        """What was read before a bad line goes out."""
        for number, line in enumerate(lines, 1):
            if line.value is None:
                yield line
                continue
            try:
                payload = self._write(json.loads(line.value))
            except Exception as problem:  # whatever a library says about it
                words = f"message {number} is not what {self._of} says: {problem}".splitlines()[0]
                raise Failure(Exit.USAGE, words, "headrace schema get shows it") from None
            yield line._replace(value=framed(self._id, payload))


def _writer(schema: Schema, resolve: Resolve) -> Write:
    match schema.type:
        case "AVRO":
            return _avro_writer(schema, resolve)
        case "PROTOBUF":
            return _protobuf_writer(schema, resolve)
    return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _avro_writer(schema: Schema, resolve: Resolve) -> Write:
    parsed = avro_schema(schema, resolve)
    import fastavro

    def write(value: Any) -> bytes:
        payload = io.BytesIO()
        fastavro.schemaless_writer(payload, parsed, value, strict_allow_default=True)
        return payload.getvalue()

    return write


def _protobuf_writer(schema: Schema, resolve: Resolve) -> Write:
    from google.protobuf import json_format, message_factory

    file, pool = protobuf_pool(schema, resolve)
    kind = pool.FindMessageTypeByName(f"{file.package}.{file.message_type[0].name}".lstrip("."))
    make = message_factory.GetMessageClass(kind)

    def write(value: Any) -> bytes:
        message = json_format.ParseDict(value, make(), descriptor_pool=pool)
        return FIRST_MESSAGE + bytes(message.SerializeToString())

    return write
