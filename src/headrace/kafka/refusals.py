"""Door: the row of an answer that says of one entry of a request that it was refused.

Kafka's answers repeat what a request names: an entry and its row have the same fields for names and numbers, and the error stands in the
row, or in the rows of its partitions. So a refusal is made by going along both, for every API alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from headrace.security.guard import RefusedEntry
from headrace.wire.schema import STRUCTS, FieldKind

_ERRORS = ("error_code", "partition_error_code")
_CALLED = {"user": "name"}
"""Where an answer has another word for what the request names."""
_NUMBERS = ("partition_index", "partition", "producer_id")


def add_refusals(response: object, refused: Iterable[RefusedEntry]) -> None:
    kinds = {spec.name: spec.element for spec in STRUCTS[type(response)]}
    for part, entry, kind in refused:
        element = kinds[part.response]
        assert element is not None and element.struct is not None, part
        rows = list(getattr(response, part.response) or ())
        rows.append(refusal(element.struct, entry, kind.kafka_code))
        setattr(response, part.response, rows)


def refusal(row_kind: type, entry: object, code: int) -> object:
    row = row_kind()
    specs = STRUCTS[row_kind]
    if not dataclasses.is_dataclass(entry):
        wanted = FieldKind.STRING if isinstance(entry, str) else FieldKind.INT32
        named = next(spec for spec in specs if spec.kind is wanted and not spec.name.startswith("error"))
        setattr(row, named.name, entry)
    for spec in specs:
        element = spec.element
        if spec.name in _ERRORS:
            setattr(row, spec.name, code)
        elif spec.name == "error_message" and spec.nullable is not None:
            setattr(row, spec.name, None)  # clients have words for the code, and show an empty text as it is
        elif element is not None and element.struct is not None:
            if _says_errors(element.struct):
                below = [refusal(element.struct, each, code) for each in _below(entry, spec.name)]
                setattr(row, spec.name, below)
            elif _has_same(entry, spec.name, element.struct):
                setattr(row, spec.name, getattr(entry, spec.name))
        elif spec.kind in (FieldKind.STRING, FieldKind.UUID, FieldKind.INT8) or spec.name in _NUMBERS:
            name = _CALLED.get(spec.name, spec.name)
            if hasattr(entry, name):
                setattr(row, spec.name, getattr(entry, name))
    return row


def _says_errors(kind: type) -> bool:
    return any(
        spec.name in _ERRORS
        or (
            spec.element is not None and spec.element.struct is not None and _says_errors(spec.element.struct)
        )
        for spec in STRUCTS[kind]
    )


def _below(entry: object, name: str) -> Iterable[object]:
    """Of what an entry lists: under the same name, or the only list that it has."""
    if hasattr(entry, name):
        return getattr(entry, name) or ()
    lists = [
        getattr(entry, spec.name) or ()
        for spec in STRUCTS.get(type(entry), ())
        if spec.kind is FieldKind.ARRAY
    ]
    return lists[0] if len(lists) == 1 else ()


def _has_same(entry: object, name: str, struct: type) -> bool:
    return any(
        spec.name == name and spec.element is not None and spec.element.struct is struct
        for spec in STRUCTS.get(type(entry), ())
    )
