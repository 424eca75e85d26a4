"""Codec: a descriptor as a .proto file, for those who have registered the one and ask for the other; one form for all ways to write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from headrace.schemas.proto_file import LABELS, MAX_NUMBER, SCALARS

_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABEL_NAMES = {number: name for name, number in LABELS.items()}


def written(file: FileDescriptorProto, *, in_order: bool = False) -> str:
    """`in_order`: sorted by names and numbers, so that what was only written in another order is the same text."""
    return "\n".join(_Writer(in_order).file(file)) + "\n"


class _Writer:
    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._is_proto3 = False

    def _sorted(self, entries: Any, key: str = "name") -> list[Any]:
        return sorted(entries, key=lambda entry: getattr(entry, key)) if self._in_order else list(entries)

    def file(self, file: FileDescriptorProto) -> Iterator[str]:
        self._is_proto3 = file.syntax == "proto3"
        yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        for name in sorted(file.dependency) if self._in_order else file.dependency:
            yield f'import "{name}";'
        yield from _options(file.options, "")
        for message in self._sorted(file.message_type):
            yield from self._message(message, "")
        for enum in self._sorted(file.enum_type):
            yield from self._enum(enum, "")
        for field in file.extension:
            yield f"extend {field.extendee.lstrip('.')} {{"
            yield from self._field(field, {}, "  ")
            yield "}"
        for service in self._sorted(file.service):
            yield f"service {service.name} {{"
            for method in service.method:
                asked, answered = (
                    _side(method.client_streaming, method.input_type),
                    _side(method.server_streaming, method.output_type),
                )
                yield f"  rpc {method.name} ({asked}) returns ({answered});"
            yield "}"

    def _message(self, message: Any, indent: str) -> Iterator[str]:
        yield f"{indent}message {message.name} {{"
        inner = indent + "  "
        yield from _options(message.options, inner)
        entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        groups = {
            field.type_name.rpartition(".")[2] for field in message.field if field.type == field.TYPE_GROUP
        }
        shown: set[int] = set()
        for field in self._sorted(message.field, "number"):
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, entries, inner, message)
            elif field.oneof_index not in shown:
                shown.add(field.oneof_index)
                yield f"{inner}oneof {message.oneof_decl[field.oneof_index].name} {{"
                for other in self._sorted(message.field, "number"):
                    if other.HasField("oneof_index") and other.oneof_index == field.oneof_index:
                        yield from self._field(other, entries, inner + "  ", message)
                yield f"{inner}}}"
        for span in message.reserved_range:
            yield f"{inner}reserved {_span(span.start, span.end - 1)};"
        for name in message.reserved_name:
            yield f'{inner}reserved "{name}";'
        for span in message.extension_range:
            yield f"{inner}extensions {_span(span.start, span.end - 1)};"
        for nested in self._sorted(message.nested_type):
            if nested.name not in entries and nested.name not in groups:
                yield from self._message(nested, inner)
        for enum in self._sorted(message.enum_type):
            yield from self._enum(enum, inner)
        yield f"{indent}}}"

    def _field(
        self, field: FieldDescriptorProto, entries: dict[str, Any], indent: str, holder: Any = None
    ) -> Iterator[str]:
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = entry.field
            yield f"{indent}map<{_kind(key)}, {_kind(value)}> {field.name} = {field.number}{_extras(field)};"
            return
        label = _LABEL_NAMES[field.label]
        in_oneof = field.HasField("oneof_index") and not field.proto3_optional
        if in_oneof or (label == "optional" and self._is_proto3 and not field.proto3_optional):
            label = ""
        start = f"{indent}{label} " if label else indent
        if field.type == field.TYPE_GROUP and holder is not None:
            name = field.type_name.rpartition(".")[2]
            (nested,) = (nested for nested in holder.nested_type if nested.name == name)
            lines = list(self._message(nested, indent))
            yield f"{start}group {name} = {field.number} {{"
            yield from lines[1:]
            return
        yield f"{start}{_kind(field)} {field.name} = {field.number}{_extras(field)};"

    def _enum(self, enum: Any, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from _options(enum.options, indent + "  ")
        for value in enum.value:
            yield f"{indent}  {value.name} = {value.number};"
        for span in enum.reserved_range:
            yield f"{indent}  reserved {_span(span.start, span.end)};"
        for name in enum.reserved_name:
            yield f'{indent}  reserved "{name}";'
        yield f"{indent}}}"


def _kind(field: FieldDescriptorProto) -> str:
    return _SCALAR_NAMES.get(field.type) or field.type_name


def _extras(field: FieldDescriptorProto) -> str:
    found = []
    if field.HasField("default_value"):
        is_text = field.type in (field.TYPE_STRING, field.TYPE_BYTES)
        found.append(f"default = {_quoted(field.default_value) if is_text else field.default_value}")
    found += [line.strip().removeprefix("option ").rstrip(";") for line in _options(field.options, "")]
    return f" [{', '.join(found)}]" if found else ""


def _options(options: Any, indent: str) -> Iterator[str]:
    for kind, value in options.ListFields():
        if kind.is_repeated or kind.name == "map_entry" or kind.cpp_type == kind.CPPTYPE_MESSAGE:
            continue
        if kind.cpp_type == kind.CPPTYPE_ENUM:
            shown = kind.enum_type.values_by_number[value].name
        elif kind.cpp_type == kind.CPPTYPE_BOOL:
            shown = "true" if value else "false"
        else:
            shown = _quoted(value) if isinstance(value, str) else str(value)
        yield f"{indent}option {kind.name} = {shown};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _span(first: int, last: int) -> str:
    if last >= MAX_NUMBER:
        return f"{first} to max"
    return str(first) if first == last else f"{first} to {last}"


def _side(streams: bool, name: str) -> str:
    return f"stream {name}" if streams else name
