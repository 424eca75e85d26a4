"""Machine: whether a reader with one Avro schema can read what a writer with another has written (the specification's schema resolution)."""

from __future__ import annotations

from headrace.schemas.avro import AvroType

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What is read as something else, by what was written."""


def problems(reader: AvroType, writer: AvroType) -> list[str]:
    """Empty: it can. Each says where and what."""
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        if pair in self._under_way:
            return []  # they are being compared further up
        self._under_way.add(pair)
        try:
            return self._compared(reader, writer, path)
        finally:
            self._under_way.discard(pair)

    def _compared(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if writer.kind == "union":
            return [
                f"MISSING_UNION_BRANCH at {path or '/'}: the reader can't read {part.shown}"
                for part in writer.parts
                if self.compare(reader, part, path)
            ]
        if reader.kind == "union":
            if any(not self.compare(part, writer, path) for part in reader.parts):
                return []
            return [f"MISSING_UNION_BRANCH at {path or '/'}: the reader's union lacks {writer.shown}"]
        if reader.kind != writer.kind:
            if reader.kind in _WIDER.get(writer.kind, ()):
                return []
            return [
                f"TYPE_MISMATCH at {path or '/'}: the reader expects {reader.shown}, written was {writer.shown}"
            ]
        match reader.kind:
            case "record":
                return self._names(reader, writer, path) or self._fields(reader, writer, path)
            case "enum":
                return self._names(reader, writer, path) or _symbols(reader, writer, path)
            case "fixed":
                return self._names(reader, writer, path) or _sizes(reader, writer, path)
            case "array" | "map":
                inner = "items" if reader.kind == "array" else "values"
                return self.compare(reader.parts[0], writer.parts[0], f"{path}/{inner}")
        return []

    def _names(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        if reader.short_name == writer.short_name or writer.name in reader.aliases:
            return []
        return [
            f"NAME_MISMATCH at {path or '/'}: the reader expects {reader.name}, written was {writer.name}"
        ]

    def _fields(self, reader: AvroType, writer: AvroType, path: str) -> list[str]:
        written = {field.name: field for field in writer.fields}
        found: list[str] = []
        for field in reader.fields:
            names = (field.name, *field.aliases)
            other = next((written[name] for name in names if name in written), None)
            place = f"{path}/fields/{field.name}"
            if other is not None:
                found += self.compare(field.type, other.type, place)
            elif not field.has_default:
                found.append(
                    f"READER_FIELD_MISSING_DEFAULT_VALUE at {place}: the writer has no field "
                    f'"{field.name}", and the reader has no default for it'
                )
        return found


def _symbols(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.has_default:
        return []
    return [f"MISSING_ENUM_SYMBOLS at {path or '/'}: {reader.name} lacks {', '.join(missing)}"]


def _sizes(reader: AvroType, writer: AvroType, path: str) -> list[str]:
    if reader.size == writer.size:
        return []
    return [f"FIXED_SIZE_MISMATCH at {path or '/'}: {reader.name} has {reader.size} bytes, not {writer.size}"]
