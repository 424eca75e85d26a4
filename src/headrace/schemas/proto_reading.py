"""Machine: whether messages that were written with one Protobuf schema are read with another.

What counts on the wire are numbers and kinds: names may change, fields may come and go. A message that is gone, a number that means
something else, and fields that become one another's alternatives are what breaks readers.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from headrace.schemas.protobuf import ProtoSchema, types_of

_F = FieldDescriptorProto
_GROUPS = (
    frozenset((_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_INT64, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM)),
    frozenset((_F.TYPE_SINT32, _F.TYPE_SINT64)),
    frozenset((_F.TYPE_STRING, _F.TYPE_BYTES)),
    frozenset((_F.TYPE_FIXED32, _F.TYPE_SFIXED32)),
    frozenset((_F.TYPE_FIXED64, _F.TYPE_SFIXED64)),
)
"""Kinds that are read as one another."""
_NAMED = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
_LENGTHS = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE)
"""Of these a reader of one takes the last of many."""


def problems(reader: ProtoSchema, writer: ProtoSchema) -> list[str]:
    """Empty: they are. Each says where and what."""
    return _Comparison(reader, writer).run()


class _Comparison:
    def __init__(self, reader: ProtoSchema, writer: ProtoSchema) -> None:
        self._reader, self._writer = reader, writer
        self._reader_types, self._writer_types = reader.types(), writer.types()
        self._compared: set[tuple[str, str]] = set()

    def run(self) -> list[str]:
        found: list[str] = []
        own, written = types_of(self._reader.file), types_of(self._writer.file)
        package, package_before = self._reader.file.package, self._writer.file.package
        for name, message in written.items():
            if not isinstance(message, DescriptorProto) or message.options.map_entry:
                continue
            # A package may be renamed; what is in it is still the same.
            here = _with_package(name, package_before, package)
            if not isinstance(own.get(here), DescriptorProto):
                found.append(f"MESSAGE_REMOVED: {name[1:]}")
            else:
                found += self._messages(here, name)
        return found

    def _messages(self, name: str, name_before: str) -> list[str]:
        if (name, name_before) in self._compared:
            return []
        self._compared.add((name, name_before))
        message, before = self._reader_types[name], self._writer_types[name_before]
        fields = {field.number: field for field in message.field}
        fields_before = {field.number: field for field in before.field}
        place = name_before[1:]
        found: list[str] = []
        for number, field in fields_before.items():
            other = fields.get(number)
            if other is None:
                found += _removed(message, before, field, place)
            else:
                found += self._fields(other, field, f"{place}.{field.name}")
        for number, field in fields.items():
            if number not in fields_before and field.label == _F.LABEL_REQUIRED:
                found.append(f"REQUIRED_FIELD_ADDED: {place}.{field.name}")
        return found + _oneofs(message, before, place)

    def _fields(self, field: Any, before: Any, place: str) -> list[str]:
        found: list[str] = []
        if (field.label == _F.LABEL_REPEATED) != (before.label == _F.LABEL_REPEATED) and (
            before.type not in _LENGTHS or field.type not in _LENGTHS
        ):
            found.append(f"FIELD_NUMERIC_LABEL_CHANGED: {place}")
        if field.label == _F.LABEL_REQUIRED and before.label != _F.LABEL_REQUIRED:
            found.append(f"REQUIRED_FIELD_ADDED: {place}")
        if before.type in _NAMED and field.type in _NAMED:
            return found + self._named(field, before, place)
        if (before.type in _NAMED) != (field.type in _NAMED):
            return [*found, f"FIELD_KIND_CHANGED: {place}"]
        if field.type != before.type and not any(
            field.type in group and before.type in group for group in _GROUPS
        ):
            found.append(f"FIELD_SCALAR_KIND_CHANGED: {place}")
        return found

    def _named(self, field: Any, before: Any, place: str) -> list[str]:
        wanted = _with_package(before.type_name, self._writer.file.package, self._reader.file.package)
        is_map = self._reader_types[field.type_name].options.map_entry
        if field.type_name not in (wanted, before.type_name) and not is_map:
            return [f"FIELD_NAMED_TYPE_CHANGED: {place}: {before.type_name[1:]} is now {field.type_name[1:]}"]
        return self._messages(field.type_name, before.type_name)


def _with_package(name: str, before: str, after: str) -> str:
    prefix = f".{before}." if before else "."
    if not name.startswith(prefix):
        return name
    return (f".{after}." if after else ".") + name[len(prefix) :]


def _oneof_of(message: Any, field: Any) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return str(message.oneof_decl[field.oneof_index].name)


def _removed(message: Any, before: Any, field: Any, place: str) -> list[str]:
    if field.label == _F.LABEL_REQUIRED:
        return [f"REQUIRED_FIELD_REMOVED: {place}.{field.name}"]
    oneof = _oneof_of(before, field)
    if oneof and any(declared.name == oneof for declared in message.oneof_decl):
        return [f"ONEOF_FIELD_REMOVED: {place}.{field.name}"]
    return []


def _oneofs(message: Any, before: Any, place: str) -> list[str]:
    """One field may move into a oneof that is new; what is put beside another takes it away."""
    fields_before = {field.number: field for field in before.field}
    declared = {entry.name for entry in before.oneof_decl}
    moved: dict[str, int] = {}
    found: list[str] = []
    for field in message.field:
        oneof, other = _oneof_of(message, field), fields_before.get(field.number)
        if not oneof or other is None or _oneof_of(before, other):
            continue
        if oneof in declared:
            found.append(f"FIELD_MOVED_TO_EXISTING_ONEOF: {place}.{field.name}")
        else:
            moved[oneof] = moved.get(oneof, 0) + 1
    found += [f"MULTIPLE_FIELDS_MOVED_TO_ONEOF: {place}.{name}" for name, count in moved.items() if count > 1]
    return found
