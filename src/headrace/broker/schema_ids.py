"""Machine: whether the records of a batch have schemas that their topic's subjects know. What is null has none and needs none."""

from __future__ import annotations

from typing import NamedTuple

from headrace.records.batch import BatchHeader
from headrace.records.read import iter_spans
from headrace.schemas.framing import PREFIX_BYTES, schema_id


class SchemaIds(NamedTuple):
    """Of keys and of values; None: nobody asks."""

    key: frozenset[int] | None
    value: frozenset[int] | None


def strangers(body: bytes, header: BatchHeader, ids: SchemaIds) -> tuple[tuple[int, str], ...]:
    """Indexes of records whose schema is not registered, and why."""
    found: list[tuple[int, str]] = []
    for index, span in enumerate(iter_spans(body, header)):
        for part, known, start, length in (
            ("key", ids.key, span.key_start, span.key_length),
            ("value", ids.value, span.value_start, span.value_length),
        ):
            if known is None or length < 0:
                continue
            identifier = schema_id(body[start : start + min(length, PREFIX_BYTES)])
            if identifier is None:
                found.append((index, f"the {part} does not say which schema it has"))
            elif identifier not in known:
                found.append((index, f"schema {identifier} is not registered for the {part}s of this topic"))
    return tuple(found)
