"""Codec: what one route takes and answers, for the OpenAPI document. Bodies and answers are msgspec types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
Schema = Mapping[str, object]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "string"}
"""There or not there; its value does not matter."""
DURATION: Schema = {"type": "string", "pattern": "^[0-9]{1,9}(ms|s|m|h|d)?$", "examples": ["20s", "1500ms"]}
TIME: Schema = {"type": "string", "examples": ["2026-11-01T12:00:00Z", "1793534400000"]}
OFFSET: Schema = {
    "type": "string",
    "pattern": "^(start|beginning|earliest|end|latest|-?[0-9]{1,18}|@[0-9]{1,9}(ms|s|m|h|d)|@[0-9]{10,13}|@[0-9]{4}-[0-9]{2}-[0-9]{2}.*)$",
    "examples": ["start", "42", "-10", "@15m"],
}


def whole(low: int, high: int, default: int | None = None) -> Schema:
    schema: Document = {"type": "integer", "minimum": low, "maximum": high}
    return schema if default is None else {**schema, "default": default}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    description: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False


@dataclass(frozen=True, slots=True)
class Contract:
    """What one route does. `answers` maps a status to the type of its body; None is an answer without one."""

    summary: str
    tag: str
    answers: Mapping[int, object]
    description: str = ""
    query: Sequence[Param] = ()
    headers: Sequence[Param] = ()
    body: Sequence[object] = ()
    """The body is JSON of one of these types."""
    body_required: bool = True
    raw_body: bool = False
    """Any other content type is taken as it is."""
    other_types: Sequence[str] = ()
    """Content types that the answer may have besides JSON, by Accept."""
    content_type: str = "application/json"
    """Of the answer."""
    problems: Sequence[int] = (400, 404)
    name: str = ""
    """Its operationId, where the path alone would give the one of another."""


def plain_text(summary: str, *query: Param) -> Contract:
    """For health checks and metrics."""
    return Contract(
        summary,
        "service",
        {200: str},
        query=query,
        content_type="text/plain",
        problems=(503,) if query else (),
    )
