"""Machine: the registry: subjects with their versions, schemas by id, compatibility and modes; what is stored under which key.

Every change compares and moves one key, `clock`: whatever was looked at to decide it (versions, references, who else has the same schema,
the next id) is still so when it happens, on whichever broker. It is made of keys and values alone, so every broker has the same.

    clock                      how often it changed, and the last id given in each context: an id never means something else
    schema/<context>/<id>      a schema
    subject/<subject>          its versions
    config/<subject>           compatibility; of a context, or (empty) of all
    mode/<subject>             likewise
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from headrace.schemas.compatibility import DEFAULT_LEVEL, Level
from headrace.schemas.model import BadSchema, Reference, Schema, SchemaType

Mode = Literal["READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"]
MODES: tuple[Mode, ...] = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_CONTEXT = "."
CLOCK = "clock"


class Version(msgspec.Struct, frozen=True):
    version: int
    id: int
    is_deleted: bool = False


class StoredSchema(msgspec.Struct, frozen=True):
    type: SchemaType
    text: str
    identity: str
    references: tuple[Reference, ...] = ()

    @property
    def schema(self) -> Schema:
        return Schema(self.type, self.text, self.references)


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    level: Level | None = None
    normalize: bool | None = None


class IdCounter(msgspec.Struct, frozen=True):
    count: int = 0
    ids: dict[str, int] = {}


class SubjectName(NamedTuple):
    """A subject in its context: `:.dev:orders-value` is orders-value in the context .dev."""

    context: str
    name: str

    @property
    def subject(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def place_of(subject: str) -> SubjectName:
    if subject.startswith(":."):
        context, colon, name = subject[1:].partition(":")
        if colon:
            return SubjectName(context, name)
    return SubjectName(DEFAULT_CONTEXT, subject)


def topic_of(subject: str) -> str:
    """Whose rights count for a subject: `orders-value` belongs to the topic orders; any other name stands for itself."""
    name = place_of(subject).name
    for end in ("-value", "-key"):
        if name.endswith(end):
            return name.removesuffix(end)
    return name


class Puts(NamedTuple):
    """Values to be stored (None: taken away), by keys within the space."""

    values: dict[str, bytes | None]


class Registry:
    """What there is, read from keys and values."""

    def __init__(self, stored: Mapping[str, bytes] | None = None) -> None:
        self.subjects: dict[str, tuple[Version, ...]] = {}
        self.schemas: dict[tuple[str, int], StoredSchema] = {}
        self.configs: dict[str, Config] = {}
        self.modes: dict[str, Mode] = {}
        self.clock = IdCounter()
        self._ids: dict[tuple[str, SchemaType, str, tuple[Reference, ...]], int] = {}
        for key, raw in (stored or {}).items():
            self._read(key, raw)

    def _read(self, key: str, raw: bytes) -> None:
        kind, _, rest = key.partition("/")
        name = unquote(rest)
        try:
            match kind:
                case "clock":
                    self.clock = msgspec.json.decode(raw, type=IdCounter)
                case "subject":
                    self.subjects[name] = msgspec.json.decode(raw, type=tuple[Version, ...])
                case "schema":
                    context, _, number = rest.partition("/")
                    stored = msgspec.json.decode(raw, type=StoredSchema)
                    place = unquote(context), int(number)
                    self.schemas[place] = stored
                    self._ids[place[0], stored.type, stored.identity, stored.references] = place[1]
                case "config":
                    self.configs[name] = msgspec.json.decode(raw, type=Config)
                case "mode":
                    self.modes[name] = msgspec.json.decode(raw, type=Mode)
        except (msgspec.DecodeError, ValueError):
            return  # a newer version may have written it (X27)

    # -- looking -------------------------------------------------------------------------------------------------------

    def names(self, *, deleted: bool = False) -> list[str]:
        return sorted(name for name in self.subjects if self.versions(name, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        return [entry for entry in self.subjects.get(subject, ()) if deleted or not entry.is_deleted]

    def find(self, subject: str, version: int, *, deleted: bool = False) -> Version | None:
        """-1 is the latest."""
        found = self.versions(subject, deleted=deleted)
        if version == -1:
            return found[-1] if found else None
        return next((entry for entry in found if entry.version == version), None)

    def stored(self, subject: str, entry: Version) -> StoredSchema:
        return self.schemas[place_of(subject).context, entry.id]

    def by_id(self, identifier: int, context: str) -> StoredSchema | None:
        return self.schemas.get((context, identifier))

    def uses(self, identifier: int, context: str, *, deleted: bool = False) -> Iterator[tuple[str, Version]]:
        """Subjects and versions that have this schema."""
        for subject in sorted(self.subjects):
            if place_of(subject).context == context:
                for entry in self.versions(subject, deleted=deleted):
                    if entry.id == identifier:
                        yield subject, entry

    def contexts(self) -> list[str]:
        return sorted({DEFAULT_CONTEXT, *(place_of(name).context for name in self.subjects)})

    def resolve(self, reference: Reference) -> Schema:
        """Raises BadSchema. What is deleted softly can still be referred to by those who do."""
        entry = self.find(reference.subject, reference.version, deleted=True)
        if entry is None:
            raise BadSchema(f'there is no version {reference.version} of "{reference.subject}" to refer to')
        return self.stored(reference.subject, entry).schema

    def referred_by(self, subject: str, version: int) -> list[int]:
        """Ids of the schemas that refer to it."""
        return sorted(
            identifier
            for (_, identifier), stored in self.schemas.items()
            if any(entry.subject == subject and entry.version == version for entry in stored.references)
        )

    def id_of(self, context: str, schema: Schema, identity: str) -> int | None:
        return self._ids.get((context, schema.type, identity, schema.references))

    def version_with(self, subject: str, identifier: int, *, deleted: bool = False) -> Version | None:
        return next(
            (entry for entry in self.versions(subject, deleted=deleted) if entry.id == identifier), None
        )

    def level(self, subject: str) -> Level:
        return next(
            (found.level for key in _chain(subject) if (found := self.configs.get(key)) and found.level),
            DEFAULT_LEVEL,
        )

    def normalizes(self, subject: str) -> bool:
        for key in _chain(subject):
            found = self.configs.get(key)
            if found is not None and found.normalize is not None:
                return found.normalize
        return False

    def mode(self, subject: str) -> Mode:
        if self.modes.get("") == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        return next((self.modes[key] for key in _chain(subject) if key in self.modes), "READWRITE")

    # -- what changes --------------------------------------------------------------------------------------------------

    def next_version(self, subject: str) -> int:
        return max((entry.version for entry in self.subjects.get(subject, ())), default=0) + 1

    def next_id(self, context: str) -> int:
        return self.clock.ids.get(context, 0) + 1

    def adding(self, subject: str, stored: StoredSchema, identifier: int, version: int) -> Puts:
        context = place_of(subject).context
        entries = [entry for entry in self.subjects.get(subject, ()) if entry.version != version]
        entries.append(Version(version, identifier))
        entries.sort(key=lambda entry: entry.version)
        values: dict[str, bytes | None] = {_key("subject", subject): msgspec.json.encode(entries)}
        if (context, identifier) not in self.schemas:
            values[_schema_key(context, identifier)] = msgspec.json.encode(stored)
        return self._moved(values, {context: identifier})

    def deleting(self, subject: str, versions: Iterable[int], *, permanent: bool) -> Puts:
        gone = set(versions)
        context = place_of(subject).context
        before = self.subjects.get(subject, ())
        if not permanent:
            kept = [
                msgspec.structs.replace(entry, is_deleted=True) if entry.version in gone else entry
                for entry in before
            ]
            return self._moved({_key("subject", subject): msgspec.json.encode(kept)})
        kept = [entry for entry in before if entry.version not in gone]
        values: dict[str, bytes | None] = {
            _key("subject", subject): msgspec.json.encode(kept) if kept else None
        }
        held = {entry.id for entry in kept}
        held |= {
            entry.id
            for other, entries in self.subjects.items()
            if other != subject and place_of(other).context == context
            for entry in entries
        }
        for entry in before:
            if entry.id not in held:
                values[_schema_key(context, entry.id)] = None
        return self._moved(values)

    def forgetting(self, subject: str, puts: Puts) -> Puts:
        """A subject that is deleted leaves no compatibility and no mode behind."""
        values = dict(puts.values)
        if subject in self.configs:
            values[_key("config", subject)] = None
        if subject in self.modes:
            values[_key("mode", subject)] = None
        return Puts(values)

    def configuring(self, subject: str, config: Config | None) -> Puts:
        return self._moved({_key("config", subject): None if config is None else msgspec.json.encode(config)})

    def switching(self, subject: str, mode: Mode | None) -> Puts:
        return self._moved({_key("mode", subject): None if mode is None else msgspec.json.encode(mode)})

    def _moved(self, values: dict[str, bytes | None], ids: Mapping[str, int] | None = None) -> Puts:
        given = dict(self.clock.ids)
        for context, identifier in (ids or {}).items():
            given[context] = max(identifier, given.get(context, 0))
        return Puts({**values, CLOCK: msgspec.json.encode(IdCounter(self.clock.count + 1, given))})


def _chain(subject: str) -> tuple[str, ...]:
    """Who is asked about a subject: itself, its context, everybody."""
    context = place_of(subject).context
    return (subject, "") if context == DEFAULT_CONTEXT else (subject, f":{context}:", "")


def _key(kind: str, subject: str) -> str:
    return f"{kind}/{quote(subject, safe='')}"


def _schema_key(context: str, identifier: int) -> str:
    return f"schema/{quote(context, safe='')}/{identifier}"
