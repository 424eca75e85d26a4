"""Codec: the OpenAPI 3.1 document, made from the routes themselves.

`rest/operations/` says for each method and path what it takes and answers; the document has what is both declared and
routed. So it can't name a path that is not served, and a test refuses a public path that nobody has declared. Bodies and
answers are msgspec types; their JSON schemas come from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.core.moments import show_moments
from headrace.http.router import Route

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "string"}
"""There or not there; its value does not matter."""
DURATION: Schema = {"type": "string", "pattern": "^[0-9]{1,9}(ms|s|m|h|d)?$", "examples": ["20s", "1500ms"]}
TIME: Schema = {"type": "string", "examples": ["2026-11-01T12:00:00Z", "1793534400000"]}
OFFSET: Schema = {
    "type": "string",
    "pattern": "^(start|end|-?[0-9]{1,18})$",
    "examples": ["start", "42", "-10"],
}
PROBLEM = "Problem"


class Problem(msgspec.Struct, kw_only=True):
    """RFC 9457. `code` is what a program compares; `detail` and `hint` are for a person."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str = ""
    hint: str = ""
    request_id: str = ""
    kafka_error: int | None = None


def whole(low: int, high: int, default: int | None = None) -> Schema:
    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
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
class Operation:
    """What one route does. `answers` maps a status to the type of its body; None is an answer without one."""

    summary: str
    tag: str
    answers: Mapping[int, Any]
    description: str = ""
    query: Sequence[Param] = ()
    headers: Sequence[Param] = ()
    body: Sequence[Any] = ()
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


Operations = Mapping[tuple[str, str], Operation]
"""By method and template."""


def document(routes: Iterable[Route], operations: Operations, version: str) -> dict[str, Any]:
    """Every route that is declared."""
    declared = [
        (route, operations[route.method, route.template])
        for route in routes
        if (route.method, route.template) in operations
    ]
    types = {PROBLEM: Problem}
    for _, operation in declared:
        for kind in (*operation.body, *operation.answers.values()):
            if kind is not None:
                types[repr(kind)] = kind
    schemas, components = msgspec.json.schema_components(
        list(types.values()), ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    asked = {getattr(kind, "__name__", "") for _, operation in declared for kind in operation.body}
    for name, component in components.items():
        if name not in asked:
            show_moments(component)
    paths: dict[str, dict[str, Any]] = {}
    for route, operation in declared:
        item = _item(route, operation, by_type)
        paths.setdefault(route.template.replace("*}", "}"), {})[route.method.lower()] = item
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": version,
            "summary": "Topics, queues, groups, schedules and webhooks over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "the broker that serves this document; any broker answers"}],
        "tags": [{"name": name} for name in sorted({operation.tag for _, operation in declared})],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {name: components[name] for name in sorted(components)}},
    }


def _item(route: Route, operation: Operation, by_type: Mapping[str, Schema]) -> dict[str, Any]:
    item: dict[str, Any] = {
        "operationId": operation.name or _operation_id(route),
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, by_type),
    }
    if operation.description:
        item["description"] = operation.description
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\*?\}", route.template)
    ]
    for place, given in (("query", operation.query), ("header", operation.headers)):
        parameters += [
            {
                "name": param.name,
                "in": place,
                "required": param.required,
                "description": param.description,
                "schema": dict(param.schema),
            }
            for param in given
        ]
    if parameters:
        item["parameters"] = parameters
    body = _body(operation, by_type)
    if body is not None:
        item["requestBody"] = body
    return item


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z0-9]+", route.template.lower())
    return "_".join([route.method.lower(), *(word for word in words if word not in ("api", "v1"))])


def _body(operation: Operation, by_type: Mapping[str, Schema]) -> dict[str, Any] | None:
    content: dict[str, Any] = {}
    if operation.body:
        schemas = [by_type[repr(kind)] for kind in operation.body]
        content["application/json"] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if operation.raw_body:
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        content["text/plain"] = {"schema": TEXT}
    return {"required": operation.body_required, "content": content} if content else None


def _responses(operation: Operation, by_type: Mapping[str, Schema]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, kind in operation.answers.items():
        content = {} if kind is None else {operation.content_type: {"schema": by_type[repr(kind)]}}
        if kind is not None:
            content |= {other: {"schema": TEXT} for other in operation.other_types}
        found[str(status)] = {"description": _MEANINGS.get(status, "Done.")}
        if content:
            found[str(status)]["content"] = content
    problem = {"application/problem+json": {"schema": by_type[PROBLEM]}}
    for status in operation.problems:
        found.setdefault(str(status), {"description": _MEANINGS[status], "content": problem})
    found["default"] = {"description": "Any other refusal.", "content": problem}
    return found


_MEANINGS = {
    200: "Done.",
    201: "Made.",
    202: "Begun; it goes on by itself.",
    204: "Done; there is nothing to say.",
    400: "The request can't be understood.",
    403: "Not from there, or not in this way.",
    404: "There is no such thing.",
    409: "It contradicts what there is.",
    412: "It has been changed since you looked.",
    429: "Too many at once.",
    415: "The body has a type that is not taken here.",
    503: "Not now; try again.",
}
