"""Driver: the schema registry of the cluster: kept in the coordinator, changed by compared transactions (R1), the same at every broker.

Reading schemas and holding them against each other is work that a client chooses the size of, so it happens in a thread (X12), on a
registry that does not change: news make another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from headrace.broker.metadata import Decision, Metadata
from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.broker.schema_ids import SchemaIds
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Op, PutKey
from headrace.cluster.deltas import Delta, OpaqueChanged, TopicConfigChanged
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.limits import KIB
from headrace.core.measures import Family, Sample, counter, gauge
from headrace.schemas.compatibility import Level, identity, kept_text, problems
from headrace.schemas.model import BadSchema, Schema
from headrace.schemas.registry import CLOCK, Config, Mode, Puts, Registry, StoredSchema, Version, place_of

T = TypeVar("T")

SPACE = "schemas"
MAX_SCHEMAS = 10_000
MAX_SCHEMA_BYTES = 512 * KIB
MAX_SUBJECT_CHARS = 500

_STATUS_KINDS = {409: ErrorKind.CONFLICT, 422: ErrorKind.INVALID_REQUEST, 413: ErrorKind.PAYLOAD_TOO_LARGE}


class RegistryRefused(HeadraceError):
    """In the words of Confluent's registry: `code` is theirs."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(_STATUS_KINDS.get(code if code < 1_000 else code // 100, ErrorKind.CONFLICT), detail)
        self.code = code


class NotRegistered(Unknown):
    """There is no such thing, as far as this broker has heard (F34)."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(ErrorKind.NOT_FOUND, detail)
        self.code = code


class Given(NamedTuple):
    """What somebody wants to register."""

    schema: Schema
    normalize: bool = False
    id: int | None = None
    version: int | None = None


class SchemaRegistry:
    def __init__(self, runtime: Runtime, metadata: Metadata) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._image = metadata.image
        self._turn = asyncio.Lock()
        self._now: Registry | None = None
        self._allowed: dict[str, frozenset[int]] = {}
        self.validating = False
        """Whether a topic was seen here that holds records against their schemas; else nobody has to look."""
        self._registered = self._refused = 0
        self.refused_batches = 0

    def heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith(f"{SPACE}/") for delta in deltas):
            self._now = None
            self._allowed = {}
        for delta in deltas:
            if isinstance(delta, TopicConfigChanged):
                self.validating |= delta.topic.config.validates_schemas

    @property
    def now(self) -> Registry:
        if self._now is None:
            self._now = Registry(self._image.opaque(SPACE))
        return self._now

    # -- what records may say ------------------------------------------------------------------------------------------

    def opened(self, partition: Partition) -> None:
        self.validating |= partition.config.validates_schemas
        partition.schema_ids = lambda: self.ids_for(partition)

    def ids_for(self, partition: Partition) -> SchemaIds:
        """Which schemas the records of a topic may have, as the topic is configured now."""
        config, topic = partition.config, partition.tp.topic
        return SchemaIds(
            self._ids_of(f"{topic}-key") if config.key_schema_validation else None,
            self._ids_of(f"{topic}-value") if config.value_schema_validation else None,
        )

    def _ids_of(self, subject: str) -> frozenset[int]:
        found = self._allowed.get(subject)
        if found is None:
            found = frozenset(entry.id for entry in self.now.versions(subject))
            self._allowed[subject] = found
        return found

    # -- changes -------------------------------------------------------------------------------------------------------

    async def register(self, subject: str, given: Given) -> int:
        """The id. What is registered already keeps the one it has."""
        _check_subject(subject)
        _check_size(given.schema)
        try:
            found = await self._change(lambda registry: _registering(registry, subject, given), subject)
        except RegistryRefused:
            self._refused += 1
            raise
        self._registered += 1
        return found

    async def look_up(self, subject: str, given: Given, *, deleted: bool) -> tuple[Version, StoredSchema]:
        """The version that has this very schema."""
        _check_size(given.schema)
        registry = self.now
        if not registry.versions(subject, deleted=True):
            raise no_subject(subject)

        def look() -> int | None:
            schema, same = _read(registry, subject, given)
            return registry.id_of(place_of(subject).context, schema, same)

        identifier = await self._runtime.run_blocking(look)
        entry = None if identifier is None else registry.version_with(subject, identifier, deleted=deleted)
        if entry is None:
            raise NotRegistered(40403, f'the schema is not registered under "{subject}"')
        return entry, registry.stored(subject, entry)

    async def check(self, subject: str, given: Given, earlier: Sequence[Schema]) -> list[str]:
        """What would keep it from being registered."""
        _check_size(given.schema)
        registry = self.now

        def look() -> list[str]:
            schema, _ = _read(registry, subject, given)
            return problems(registry.level(subject), schema, earlier, registry.resolve)

        try:
            return await self._runtime.run_blocking(look)
        except BadSchema as problem:
            raise RegistryRefused(42201, f"the schema can't be read: {problem}") from None

    async def delete(self, subject: str, versions: Iterable[int], *, permanent: bool) -> list[int]:
        gone = sorted(versions)

        def decide(registry: Registry) -> tuple[Puts | None, list[int]]:
            need_writable(registry, subject)
            for version in gone:
                if by := registry.referred_by(subject, version):
                    raise RegistryRefused(
                        42206,
                        f'version {version} of "{subject}" is referred to by the schemas {by}; delete those first',
                    )
            puts = registry.deleting(subject, gone, permanent=permanent)
            left = [v for v in registry.versions(subject, deleted=permanent) if v.version not in gone]
            return (puts if left else registry.forgetting(subject, puts)), gone

        return await self._change(decide, subject)

    async def configure(self, subject: str, config: Config | None) -> None:
        await self._change(lambda registry: (registry.configuring(subject, config), None), subject)

    async def switch(self, subject: str, mode: Mode | None, *, force: bool) -> None:
        def decide(registry: Registry) -> tuple[Puts | None, None]:
            held = registry.names(deleted=True) if not subject else registry.versions(subject, deleted=True)
            if mode == "IMPORT" and held and not force:
                raise RegistryRefused(
                    42205, "schemas can be imported only where there are none yet, or by force"
                )
            return registry.switching(subject, mode), None

        await self._change(decide, subject)

    async def _change(self, decide: Callable[[Registry], tuple[Puts | None, T]], subject: str) -> T:
        """Decided in a thread from what is known, and decided again when others were faster."""

        async def decision() -> Decision[T]:
            registry, unchanged = self.now, self._metadata.unchanged(keys.opaque(SPACE, CLOCK))
            puts, result = await self._runtime.run_blocking(lambda: decide(registry))
            if puts is None:
                return Decision((), result)
            ops: list[Op] = [
                DeleteKey(keys.opaque(SPACE, key))
                if value is None
                else PutKey(keys.opaque(SPACE, key), value)
                for key, value in puts.values.items()
            ]
            return Decision((Change((unchanged,), tuple(ops), f"schemas of {subject or 'all'}"),), result)

        async with self._turn:
            return await self._metadata.compare_and_swap(decision, "schemas")

    def collect(self) -> Iterable[Family]:
        registry = self.now
        yield gauge("mq_schema_subjects", "Subjects of the schema registry", len(registry.names()))
        yield gauge("mq_schemas", "Schemas in the registry", len(registry.schemas))
        yield Family(
            "mq_schema_registrations_total",
            "counter",
            "Registrations that this broker was asked for, by what became of them",
            [
                Sample((("outcome", "registered"),), self._registered),
                Sample((("outcome", "refused"),), self._refused),
            ],
        )
        yield counter(
            "mq_schema_refused_batches_total",
            "Batches with records whose schema their topic does not have",
            self.refused_batches,
        )


def no_subject(subject: str) -> NotRegistered:
    return NotRegistered(40401, f'there is no subject "{subject}"')


def need_writable(registry: Registry, subject: str) -> None:
    if registry.mode(subject) in ("READONLY", "READONLY_OVERRIDE"):
        raise RegistryRefused(42205, f'"{subject}" is in mode {registry.mode(subject)}')


def _check_subject(subject: str) -> None:
    name = place_of(subject).name
    if not name or len(subject) > MAX_SUBJECT_CHARS:
        raise RegistryRefused(42208, f"a subject has a name of 1 to {MAX_SUBJECT_CHARS} characters")


def _check_size(schema: Schema) -> None:
    if len(schema.text) > MAX_SCHEMA_BYTES or len(schema.text.encode()) > MAX_SCHEMA_BYTES:
        raise RegistryRefused(413, f"a schema has at most {MAX_SCHEMA_BYTES // KIB} KiB")


def _read(registry: Registry, subject: str, given: Given) -> tuple[Schema, str]:
    """The schema as it is kept, and what it is known by. Raises BadSchema."""
    normalized = given.normalize or registry.normalizes(subject)
    schema = Schema(
        given.schema.type,
        kept_text(given.schema, registry.resolve, normalized=normalized),
        tuple(sorted(given.schema.references)) if normalized else given.schema.references,
    )
    return schema, identity(schema, registry.resolve)


def _registering(registry: Registry, subject: str, given: Given) -> tuple[Puts | None, int]:
    context = place_of(subject).context
    mode = registry.mode(subject)
    need_writable(registry, subject)
    if (mode == "IMPORT") != (given.id is not None):
        raise RegistryRefused(
            42205, f'"{subject}" is in mode {mode}: an id is given in mode IMPORT, and only then'
        )
    try:
        schema, same = _read(registry, subject, given)
        known = registry.id_of(context, schema, same)
        if known is not None and given.id is None and registry.version_with(subject, known) is not None:
            return None, known
        if given.id is None:
            earlier = [registry.stored(subject, entry).schema for entry in registry.versions(subject)]
            level: Level = registry.level(subject)
            found = problems(level, schema, earlier, registry.resolve)
        else:
            found = []
    except BadSchema as problem:
        raise RegistryRefused(42201, f"the schema can't be read: {problem}") from None
    if found:
        raise RegistryRefused(
            409,
            f'the schema is incompatible with an earlier one of "{subject}" ({registry.level(subject)}): '
            + "; ".join(found[:20]),
        )
    if len(registry.schemas) >= MAX_SCHEMAS:
        raise RegistryRefused(42205, f"a cluster keeps at most {MAX_SCHEMAS} schemas; delete some for good")
    identifier = given.id if given.id is not None else known or registry.next_id(context)
    held = registry.by_id(identifier, context)
    if held is not None and held.identity != same:
        raise RegistryRefused(42205, f"the id {identifier} means another schema already")
    stored = StoredSchema(schema.type, schema.text, same, schema.references)
    version = given.version or registry.next_version(subject)
    return registry.adding(subject, stored, identifier, version), identifier
