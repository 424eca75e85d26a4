"""Codec: structs as JSON, with each of their moments for people, too (decision 0029).

What has no moment in it is encoded as it is. A struct that has is shown field by field; what is not a struct, or a list of them, is
shown as it is: what a record holds is its writer's.
"""

from __future__ import annotations

from functools import cache

import msgspec

from headrace.core.moments import moment_name, rfc3339, show_moments

Row = dict[str, object]


@cache
def _is_plain(kind: type[msgspec.Struct]) -> bool:
    """It has no moments to add, and nothing that it holds has."""
    _, components = msgspec.json.schema_components((kind,))
    return not any(map(show_moments, components.values()))


@cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    """Their names here and in JSON, and those of moments as people read them."""
    names = kind.__struct_encode_fields__
    pairs = zip(kind.__struct_fields__, names, strict=True)
    return [(field, name, moment_name(name, names)) for field, name in pairs]


def row(struct: msgspec.Struct) -> Row:
    """0 and None are never. What is unset is not there."""
    row: Row = {}
    for field, name, moment in _fields(type(struct)):
        value = getattr(struct, field)
        if value is msgspec.UNSET:
            continue
        if moment:
            row[moment] = rfc3339(value) if value else None
        row[name] = shown(value)
    return row


def shown(value: object) -> object:
    """What JSON is made of."""
    if isinstance(value, msgspec.Struct):
        return value if _is_plain(type(value)) else row(value)
    if isinstance(value, list):
        return [shown(one) for one in value]
    return value
