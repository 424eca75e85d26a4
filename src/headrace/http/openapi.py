"""Codec: the OpenAPI 3.1 document, made from the routes themselves.

A route says what it takes and answers where its handler is (`http/declared.py`), so the document can't name a path that is not served; a
test refuses a public path that does not say it. Bodies and answers are msgspec types; their JSON schemas come from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import cleandoc

import msgspec

from headrace.core.moments import show_moments
from headrace.http.contract import TEXT, Contract, Document, Schema
from headrace.http.router import Route

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


def document(routes: Iterable[Route], version: str) -> Document:
    """Every route that says what it does."""
    declared = [(route, route.contract) for route in routes if route.contract is not None]
    types: dict[str, object] = {PROBLEM: Problem}
    for _, contract in declared:
        for kind in (*contract.body, *contract.answers.values()):
            if kind is not None:
                types[repr(kind)] = kind
    schemas, components = msgspec.json.schema_components(
        list(types.values()), ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    asked = {getattr(kind, "__name__", "") for _, contract in declared for kind in contract.body}
    for name, component in components.items():
        if name not in asked:
            show_moments(component)
        if "description" in component:  # before Python 3.13 a docstring keeps its indentation
            component["description"] = cleandoc(component["description"])
    paths: dict[str, Document] = {}
    for route, contract in declared:
        item = _item(route, contract, by_type)
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
        "tags": [{"name": name} for name in sorted({contract.tag for _, contract in declared})],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {name: components[name] for name in sorted(components)}},
    }


def _item(route: Route, contract: Contract, by_type: Mapping[str, Schema]) -> Document:
    item: Document = {
        "operationId": contract.name or _operation_id(route),
        "summary": contract.summary,
        "tags": [contract.tag],
        "responses": _responses(contract, by_type),
    }
    if contract.description:
        item["description"] = contract.description
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\*?\}", route.template)
    ]
    for place, given in (("query", contract.query), ("header", contract.headers)):
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
    body = _body(contract, by_type)
    if body is not None:
        item["requestBody"] = body
    return item


def _operation_id(route: Route) -> str:
    words = re.findall(r"[a-z0-9]+", route.template.lower())
    return "_".join([route.method.lower(), *(word for word in words if word not in ("api", "v1"))])


def _body(contract: Contract, by_type: Mapping[str, Schema]) -> Document | None:
    content: Document = {}
    if contract.body:
        schemas = [by_type[repr(kind)] for kind in contract.body]
        content["application/json"] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if contract.raw_body:
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        content["text/plain"] = {"schema": TEXT}
    return {"required": contract.body_required, "content": content} if content else None


def _responses(contract: Contract, by_type: Mapping[str, Schema]) -> Document:
    found: Document = {}
    for status, kind in contract.answers.items():
        content = {} if kind is None else {contract.content_type: {"schema": by_type[repr(kind)]}}
        if kind is not None:
            content |= {other: {"schema": TEXT} for other in contract.other_types}
        found[str(status)] = {"description": _MEANINGS.get(status, "Done.")}
        if content:
            found[str(status)]["content"] = content
    problem = {"application/problem+json": {"schema": by_type[PROBLEM]}}
    for status in contract.problems:
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
