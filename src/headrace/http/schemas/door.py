"""Door: the schema registry, as clients of Confluent's know it: under /schemas of the HTTP port, and at the root of a port of its own.

GET                  /subjects                                      GET|POST  /subjects/{subject}/versions
POST|DELETE          /subjects/{subject}                            GET|DELETE /subjects/{subject}/versions/{version}
GET                  …/{version}/schema | referencedby              GET       /schemas | /schemas/types | /contexts
GET                  /schemas/ids/{id}[/schema|/subjects|/versions]
POST                 /compatibility/subjects/{subject}/versions[/{version}]
GET|PUT|DELETE       /config[/{subject}] | /mode[/{subject}]

Whose topic a subject is decides who may see, add and delete its schemas (security/places.py). A schema by its id is shown to those
who may see one of the subjects that have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from headrace.broker.schema_registry import NotRegistered, RegistryRefused, SchemaRegistry, no_subject
from headrace.core.units import is_digits
from headrace.http.messages import Answer, Request, Response
from headrace.http.router import Router
from headrace.http.schemas.settings import SettingsDoor
from headrace.http.schemas.words import LATEST, answered, flag, given, id_of, shown, version_of
from headrace.schemas.compatibility import serialized
from headrace.schemas.model import SCHEMA_TYPES, Reference
from headrace.schemas.registry import DEFAULT_CONTEXT, StoredSchema, Version, place_of, topic_of
from headrace.security.rights import OWN, TOPIC, delete, describe, needs, write

OF_SUBJECT = "topic of {subject}"
LOOK = needs(describe(TOPIC, OF_SUBJECT))
LISTED = OWN.showing(describe(TOPIC))
T = TypeVar("T")


class SchemaDoor:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    def mount(self, router: Router, prefix: str) -> None:
        subject = f"{prefix}/subjects/{{subject}}"
        version = f"{subject}/versions/{{version}}"
        by_id = f"{prefix}/schemas/ids/{{id}}"
        check = f"{prefix}/compatibility/subjects/{{subject}}/versions"
        router.add("GET", prefix or "/", self._hello, OWN)
        router.add("GET", f"{prefix}/subjects", self._subjects, LISTED)
        router.add("POST", subject, self._look_up, LOOK)
        router.add("DELETE", subject, self._delete_subject, needs(delete(TOPIC, OF_SUBJECT)))
        router.add("GET", f"{subject}/versions", self._versions, LOOK)
        router.add("POST", f"{subject}/versions", self._register, needs(write(TOPIC, OF_SUBJECT)))
        router.add("GET", version, self._version, LOOK)
        router.add("DELETE", version, self._delete_version, needs(delete(TOPIC, OF_SUBJECT)))
        router.add("GET", f"{version}/schema", self._text, LOOK)
        router.add("GET", f"{version}/referencedby", self._referred_by, LOOK)
        router.add("GET", f"{prefix}/schemas", self._all, LISTED)
        router.add("GET", f"{prefix}/schemas/types", self._types, OWN)
        router.add("GET", by_id, self._by_id, LISTED)
        router.add("GET", f"{by_id}/schema", self._text_by_id, LISTED)
        router.add("GET", f"{by_id}/subjects", self._subjects_by_id, LISTED)
        router.add("GET", f"{by_id}/versions", self._versions_by_id, LISTED)
        router.add("POST", check, self._check_all, LOOK)
        router.add("POST", f"{check}/{{version}}", self._check_one, LOOK)
        router.add("GET", f"{prefix}/contexts", self._contexts, OWN)
        SettingsDoor(self._schemas).mount(router, prefix)

    # -- subjects and versions -----------------------------------------------------------------------------------------

    def _hello(self, request: Request) -> Response:
        return answered({})

    def _types(self, request: Request) -> Response:
        return answered(list(SCHEMA_TYPES))

    def _contexts(self, request: Request) -> Response:
        return answered(self._schemas.now.contexts())

    def _names(self, request: Request) -> list[str]:
        registry = self._schemas.now
        prefix = request.query.get("subjectPrefix", "")
        names = registry.names(deleted=flag(request, "deleted") or flag(request, "deletedOnly"))
        if flag(request, "deletedOnly"):
            names = [name for name in names if not registry.versions(name)]
        if prefix in (":*:", ""):
            return [
                name
                for name in names
                if (prefix or place_of(name).context == DEFAULT_CONTEXT) and _sees(request, name)
            ]
        return [name for name in names if name.startswith(prefix) and _sees(request, name)]

    def _subjects(self, request: Request) -> Response:
        return answered(_paged(request, self._names(request)))

    def _versions(self, request: Request) -> Response:
        subject, registry = request.params["subject"], self._schemas.now
        only_deleted = flag(request, "deletedOnly")
        found = registry.versions(subject, deleted=flag(request, "deleted") or only_deleted)
        if not found:
            raise no_subject(subject)
        numbers = [entry.version for entry in found if entry.is_deleted or not only_deleted]
        return answered(_paged(request, numbers))

    async def _register(self, request: Request) -> Answer:
        wanted = given(request)
        self._need_references(request, wanted.schema.references)
        return answered({"id": await self._schemas.register(request.params["subject"], wanted)})

    def _need_references(self, request: Request, references: Iterable[Reference]) -> None:
        for reference in references:
            if not _sees(request, reference.subject):
                raise RegistryRefused(
                    42201, f'there is no version {reference.version} of "{reference.subject}" to refer to'
                )

    async def _look_up(self, request: Request) -> Answer:
        subject = request.params["subject"]
        wanted = given(request)
        self._need_references(request, wanted.schema.references)
        entry, stored = await self._schemas.look_up(subject, wanted, deleted=flag(request, "deleted"))
        return answered({"subject": subject, "version": entry.version, "id": entry.id, **shown(stored)})

    def _entry(self, request: Request, *, deleted: bool = False) -> tuple[Version, StoredSchema]:
        subject, registry = request.params["subject"], self._schemas.now
        wanted = version_of(request)
        entry = registry.find(subject, wanted, deleted=deleted or flag(request, "deleted"))
        if entry is None:
            if not registry.versions(subject, deleted=deleted or flag(request, "deleted")):
                raise no_subject(subject)
            raise NotRegistered(40402, f'"{subject}" has no version {request.params["version"]}')
        return entry, registry.stored(subject, entry)

    def _shown_text(self, request: Request, stored: StoredSchema) -> str:
        if stored.type == "PROTOBUF" and request.query.get("format") == "serialized":
            return serialized(stored.schema, self._schemas.now.resolve)
        return stored.text

    def _version(self, request: Request) -> Response:
        entry, stored = self._entry(request)
        document = {"subject": request.params["subject"], "version": entry.version, "id": entry.id}
        return answered({**document, **shown(stored, self._shown_text(request, stored))})

    def _text(self, request: Request) -> Response:
        _, stored = self._entry(request)
        return Response(self._shown_text(request, stored).encode(), 200, "application/json")

    def _referred_by(self, request: Request) -> Response:
        entry, _ = self._entry(request, deleted=True)
        return answered(self._schemas.now.referred_by(request.params["subject"], entry.version))

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def _delete_subject(self, request: Request) -> Answer:
        subject, registry = request.params["subject"], self._schemas.now
        permanent = flag(request, "permanent")
        entries, alive = registry.versions(subject, deleted=True), registry.versions(subject)
        if not entries:
            raise no_subject(subject)
        if permanent and alive:
            raise NotRegistered(40405, f'"{subject}" was not deleted softly first')
        if not permanent and not alive:
            raise NotRegistered(
                40404, f'"{subject}" is deleted softly already; delete it for good with permanent=true'
            )
        chosen = entries if permanent else alive
        numbers = [entry.version for entry in chosen]
        return answered(await self._schemas.delete(subject, numbers, permanent=permanent))

    async def _delete_version(self, request: Request) -> Answer:
        subject, permanent = request.params["subject"], flag(request, "permanent")
        entry, _ = self._entry(request, deleted=True)
        if version_of(request) == LATEST and not permanent:
            entry, _ = self._entry(request)
        if permanent and not entry.is_deleted:
            raise NotRegistered(40407, f'version {entry.version} of "{subject}" was not deleted softly first')
        if not permanent and entry.is_deleted:
            raise NotRegistered(40406, f'version {entry.version} of "{subject}" is deleted softly already')
        (number,) = await self._schemas.delete(subject, [entry.version], permanent=permanent)
        return answered(number)

    # -- schemas -------------------------------------------------------------------------------------------------------

    def _all(self, request: Request) -> Response:
        registry = self._schemas.now
        latest_only, deleted = flag(request, "latestOnly"), flag(request, "deleted")
        found = []
        for subject in self._names(request):
            entries = registry.versions(subject, deleted=deleted)
            for entry in entries[-1:] if latest_only else entries:
                stored = registry.stored(subject, entry)
                found.append({"subject": subject, "version": entry.version, "id": entry.id, **shown(stored)})
        return answered(_paged(request, found))

    def _users(self, request: Request) -> tuple[StoredSchema, list[tuple[str, Version]]]:
        """A schema by its id, and who has it among those that the caller may see (A44)."""
        identifier, registry = id_of(request), self._schemas.now
        context = place_of(request.query.get("subject", "")).context
        stored = registry.by_id(identifier, context)
        uses = registry.uses(identifier, context, deleted=True)
        seen = [(subject, entry) for subject, entry in uses if _sees(request, subject)]
        if stored is None or not seen:
            raise NotRegistered(40403, f"there is no schema with the id {identifier}")
        return stored, seen

    def _by_id(self, request: Request) -> Response:
        stored, _ = self._users(request)
        document = shown(stored, self._shown_text(request, stored))
        if flag(request, "fetchMaxId"):
            context = place_of(request.query.get("subject", "")).context
            document["maxId"] = self._schemas.now.next_id(context) - 1
        return answered(document)

    def _text_by_id(self, request: Request) -> Response:
        stored, _ = self._users(request)
        return Response(self._shown_text(request, stored).encode(), 200, "application/json")

    def _subjects_by_id(self, request: Request) -> Response:
        deleted = flag(request, "deleted")
        names = [name for name, entry in self._users(request)[1] if deleted or not entry.is_deleted]
        return answered(list(dict.fromkeys(names)))

    def _versions_by_id(self, request: Request) -> Response:
        deleted = flag(request, "deleted")
        seen = [(name, entry) for name, entry in self._users(request)[1] if deleted or not entry.is_deleted]
        return answered([{"subject": name, "version": entry.version} for name, entry in seen])

    # -- compatibility -------------------------------------------------------------------------------------------------

    async def _check_all(self, request: Request) -> Answer:
        subject, registry = request.params["subject"], self._schemas.now
        return await self._checked(request, registry.versions(subject))

    async def _check_one(self, request: Request) -> Answer:
        entry, _ = self._entry(request)
        return await self._checked(request, [entry])

    async def _checked(self, request: Request, entries: list[Version]) -> Answer:
        subject, registry = request.params["subject"], self._schemas.now
        wanted = given(request)
        self._need_references(request, wanted.schema.references)
        earlier = [registry.stored(subject, entry).schema for entry in entries]
        found = await self._schemas.check(subject, wanted, earlier)
        document: dict[str, object] = {"is_compatible": not found}
        if flag(request, "verbose"):
            document["messages"] = found
        return answered(document)


def _sees(request: Request, subject: str) -> bool:
    return request.sees(TOPIC, topic_of(subject))


def _paged(request: Request, found: list[T]) -> list[T]:
    def number(name: str, default: int) -> int:
        text = request.query.get(name, "")
        return int(text) if is_digits(text) and len(text) < 10 else default

    offset, limit = number("offset", 0), number("limit", -1)
    return found[offset:] if limit < 0 else found[offset : offset + limit]
