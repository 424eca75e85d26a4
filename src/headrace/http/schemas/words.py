"""Codec: requests and answers of the schema registry in Confluent's words: their JSON, their error codes."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from headrace.broker.latest import Latest
from headrace.broker.schema_registry import Given, NotRegistered, RegistryRefused
from headrace.core.errors import HeadraceError
from headrace.core.units import is_digits
from headrace.http.known import KnowingRouter
from headrace.http.messages import Answer, Handler, Request, Response
from headrace.http.router import Behind, Route, Router
from headrace.schemas.model import SCHEMA_TYPES, BadSchema, Reference, Schema
from headrace.schemas.registry import StoredSchema

TYPE = "application/vnd.schemaregistry.v1+json"
LATEST = -1
_MAX_VERSION = 2**31 - 1

_encode = msgspec.json.Encoder().encode
T = TypeVar("T", bound=msgspec.Struct)
Contents = dict[str, Any]
"""Of what is taken from clients of other registries, and not kept."""


class Registration(msgspec.Struct, kw_only=True):
    schema: str | None = None
    schemaType: str | None = None
    references: list[Reference] | None = None
    id: Annotated[int, Meta(ge=-1, le=_MAX_VERSION)] | None = None
    version: Annotated[int, Meta(ge=-1, le=_MAX_VERSION)] | None = None
    metadata: Contents | None = None
    ruleSet: Contents | None = None


class ConfigBody(msgspec.Struct, kw_only=True):
    compatibility: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    compatibilityGroup: str | None = None
    defaultMetadata: Contents | None = None
    overrideMetadata: Contents | None = None
    defaultRuleSet: Contents | None = None
    overrideRuleSet: Contents | None = None


class ModeBody(msgspec.Struct, kw_only=True):
    mode: str | None = None


def answered(document: object, status: int = 200) -> Response:
    return Response(_encode(document), status, TYPE)


def body_of(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RegistryRefused(422, f"the body can't be read: {problem}") from None


def given(request: Request) -> Given:
    body = body_of(request, Registration)
    kind = (body.schemaType or "AVRO").upper()
    known = next((found for found in SCHEMA_TYPES if found == kind), None)
    if known is None:
        raise RegistryRefused(42201, f"there is no schema type {kind!r}; there are {', '.join(SCHEMA_TYPES)}")
    if not body.schema:
        raise RegistryRefused(42201, "there is no schema in the body")
    for name, value in (("rules", body.ruleSet), ("metadata", body.metadata)):
        if value and any(value.values()):
            raise RegistryRefused(42201, f"{name} of schemas (data contracts) are not kept here")
    schema = Schema(known, body.schema, tuple(body.references or ()))
    identifier = body.id if body.id is not None and body.id >= 0 else None
    version = body.version if body.version is not None and body.version > 0 else None
    return Given(schema, flag(request, "normalize"), identifier, version)


def flag(request: Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def version_of(request: Request) -> int:
    text = request.params["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not is_digits(text) or not 1 <= int(text[:11]) <= _MAX_VERSION:
        raise RegistryRefused(42202, f"a version is a number from 1 on, or latest, not {text[:40]!r}")
    return int(text)


def id_of(request: Request) -> int:
    text = request.params["id"]
    if not is_digits(text) or len(text) > 10:
        raise NotRegistered(40403, f"there is no schema with the id {text[:40]!r}")
    return int(text)


def shown(stored: StoredSchema, text: str | None = None) -> dict[str, object]:
    document: dict[str, object] = {"schema": stored.text if text is None else text}
    if stored.type != "AVRO":
        document["schemaType"] = stored.type
    if stored.references:
        document["references"] = stored.references
    return document


def refusal(error: HeadraceError) -> Response:
    code = error.code if isinstance(error, RegistryRefused | NotRegistered) else 0
    status = (code if code < 1_000 else code // 100) or error.kind.info.http_status
    return answered({"error_code": code or status, "message": error.detail}, status)


class RegistryRouter(KnowingRouter):
    """Asks again before it says that there is no such thing (F34), and says it in the words that clients of a registry know."""

    def __init__(self, router: Router, latest: Latest) -> None:
        super().__init__(Behind(router, _in_words), latest)


def _in_words(route: Route) -> Handler:
    handler = route.handler

    async def in_words(request: Request) -> Answer:
        try:
            answer = handler(request)
            return answer if isinstance(answer, Answer) else await answer
        except BadSchema as problem:
            return refusal(RegistryRefused(42201, f"the schema can't be read: {problem}"))
        except HeadraceError as error:
            return refusal(error)

    return in_words
