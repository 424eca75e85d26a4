"""Command: values that name a schema of the registry, as what they say: Avro, JSON Schema and Protobuf become JSON.

What names no schema is shown as it is. What can't be read with its schema is too, and is counted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import HttpLink, part
from headrace.cli.message_format import MessageRow, message_row
from headrace.schemas.framing import PREFIX_BYTES, schema_id
from headrace.schemas.model import BadSchema, Reference, Schema, resolved

Read = Callable[[bytes], Any]
Resolve = Callable[[Reference], Schema]


class Decoder:
    def __init__(self, http: HttpLink) -> None:
        self._http = http
        self._readers: dict[int, Read | None] = {}
        self.unread = 0

    def see(self, message: Any) -> DecodedMessage:
        return DecodedMessage(message, self._decoded(message.key()), self._decoded(message.value()))

    def _decoded(self, raw: bytes | None) -> Any:
        """Nothing: there is nothing to decode."""
        identifier = schema_id(raw)
        if raw is None or identifier is None:
            return None
        if identifier not in self._readers:
            self._readers[identifier] = self._reader(identifier)
        read = self._readers[identifier]
        try:
            return None if read is None else read(raw[PREFIX_BYTES:])
        except Exception:  # bytes of somebody else, and whatever a library says about them
            self.unread += 1
            return None

    def _reader(self, identifier: int) -> Read | None:
        try:
            found = self._http.ask("GET", f"/schemas/schemas/ids/{identifier}")
        except Failure as failure:
            if failure.exit is Exit.NOT_FOUND:
                return None
            raise
        schema = schema_of(found)
        try:
            match schema.type:
                case "JSON":
                    return json.loads
                case "AVRO":
                    return _avro_reader(schema, self._referred)
                case "PROTOBUF":
                    return _protobuf_reader(schema, self._referred)
        except BadSchema:
            return None

    def _referred(self, reference: Reference) -> Schema:
        return referred(self._http, reference)


class DecodedMessage:
    """A message whose key and value are JSON where they have been decoded."""

    def __init__(self, message: Any, key: Any, value: Any) -> None:
        self._message = message
        self._key, self._value = key, value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def key(self) -> bytes | None:
        return self._message.key() if self._key is None else _json(self._key)

    def value(self) -> bytes | None:
        return self._message.value() if self._value is None else _json(self._value)

    def row(self) -> MessageRow:
        row = message_row(self._message)
        if self._key is not None:
            row.key = json.loads(_json(self._key))
        if self._value is not None:
            row.value = json.loads(_json(self._value))
        return row


def _json(value: Any) -> bytes:
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What JSON has no word for: times, decimals, bytes."""
    if isinstance(value, bytes):
        return value.decode("latin-1")  # as Avro's own JSON has it
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def referred(http: HttpLink, reference: Reference) -> Schema:
    path = f"/schemas/subjects/{part(reference.subject)}/versions/{reference.version}"
    return schema_of(http.ask("GET", path, query={"deleted": "true"}))


def schema_of(found: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(entry["name"], entry["subject"], entry["version"]) for entry in found.get("references", ())
    )
    return Schema(found.get("schemaType", "AVRO"), found["schema"], references)


def avro_schema(schema: Schema, resolve: Resolve) -> Any:
    """As fastavro has it."""
    try:
        import fastavro
    except ImportError:
        raise Failure(
            Exit.USAGE, "values in Avro need one package more", 'pip install "headrace[avro]"'
        ) from None
    named: dict[str, Any] = {}
    for _, other in resolved(schema, resolve):
        fastavro.parse_schema(json.loads(other.text), named_schemas=named)
    return fastavro.parse_schema(json.loads(schema.text), named_schemas=named)


def _avro_reader(schema: Schema, resolve: Resolve) -> Read:
    parsed = avro_schema(schema, resolve)
    import fastavro

    return lambda payload: fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)


def protobuf_pool(schema: Schema, resolve: Resolve) -> tuple[Any, Any]:
    """The file of this schema, and the pool that has it with what it imports."""
    from google.protobuf import descriptor_pool

    from headrace.schemas import protobuf

    parsed = protobuf.parse(schema, resolve)
    pool = descriptor_pool.DescriptorPool()
    waiting = [*parsed.imports.values(), parsed.file]
    added: set[str] = set()
    while waiting:
        ready = [file for file in waiting if all(name in added for name in file.dependency)]
        for file in ready:
            pool.Add(file)
            added.add(file.name)
        waiting = [file for file in waiting if file.name not in added]
    return parsed.file, pool


def _protobuf_reader(schema: Schema, resolve: Resolve) -> Read:
    from google.protobuf import json_format, message_factory

    file, pool = protobuf_pool(schema, resolve)

    def read(payload: bytes) -> Any:
        indexes, position = _message_indexes(payload)
        kind = file.message_type[indexes[0]]
        name = f"{file.package}.{kind.name}".lstrip(".")
        for index in indexes[1:]:
            kind = kind.nested_type[index]
            name += f".{kind.name}"
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(payload[position:])
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

    return read


def _message_indexes(payload: bytes) -> tuple[list[int], int]:
    """Which message of the file it is: a count and so many indexes, in zigzag varints; a lone zero is the first."""
    count, position = _varint(payload, 0)
    indexes = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return indexes or [0], position


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
