"""Codec: what the coordinator keeps about security (section 3 of the rules), each a small JSON value under `security/`.

    mode                      open, observe or enforced; since when, by whom
    super_users               principals that no rule binds (A34)
    users/<name>              a user: enabled or not
    scram/<name>/<mechanism>  salt, iterations, StoredKey, ServerKey: what a password leaves behind
    tokens/<sha256>           a token: whose, what it is called, until when
    narrower/<sha256>         a token that may less than its owner (A40); brokers that do not know these do not take them
    delegation/<id>           a delegation token (KIP-48): whose, until when, its secret, sealed
    keys/<access key id>      an access key for SQS: whose, and its secret, sealed
    acls/<digest>             one right

Values are input (X27): what does not decode is reported and not used.
"""

from __future__ import annotations

import unicodedata
from enum import IntEnum, StrEnum
from hashlib import sha256
from urllib.parse import quote, unquote

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.rights import Operation, Resource

SPACE = "security"
MODE = "mode"
SUPER_USERS = "super_users"
USERS = "users/"
SCRAM = "scram/"
TOKENS = "tokens/"
NARROWER = "narrower/"
DELEGATION = "delegation/"
KEYS = "keys/"
ACLS = "acls/"

TOKEN_ID_CHARS = 16
"""Of a token's digest: what it is called when it is listed and deleted."""
MAX_NAME = 249
ANY_NAME = "*"
ALL_OPERATIONS = 2


class Mode(StrEnum):
    OPEN = "open"
    OBSERVE = "observe"
    ENFORCED = "enforced"


class PatternType(IntEnum):
    """By Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """By Kafka's numbers."""

    DENY = 2
    ALLOW = 3


class ModeRecord(msgspec.Struct, frozen=True):
    mode: Mode
    since_ms: int = 0
    by: str = ""


class UserRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    created_ms: int = 0
    enabled: bool = True
    note: str = ""
    tenant: str = ""
    """Everything that begins so is this user's (A63)."""


class ScramRecord(msgspec.Struct, frozen=True):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class TokenGrant(msgspec.Struct, frozen=True):
    """One thing that a token is for: a right without a principal or a host, and never a denial."""

    operation: int
    """An `Operation`, or ALL_OPERATIONS."""
    resource: Resource
    name: str
    pattern: PatternType = PatternType.LITERAL

    @property
    def words(self) -> str:
        operation = "All" if self.operation == ALL_OPERATIONS else word(Operation(self.operation))
        name = f"{self.name}*" if self.pattern is PatternType.PREFIXED else self.name
        return f"{operation} {word(self.resource)} {name}"


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    owner: str
    name: str
    created_ms: int
    expires_ms: int
    rights: tuple[TokenGrant, ...] | None = None
    """None: whatever its owner may. Otherwise these, as far as the owner may them too."""
    used_ms: int = 0
    """To the hour; 0: never."""


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    owner: str
    sealed: bytes
    created_ms: int
    name: str = ""
    used_ms: int = 0
    """To the hour; 0: never."""


class DelegationRecord(msgspec.Struct, frozen=True):
    owner: str
    """A principal, and so are the others."""
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """It can't be renewed beyond."""
    digest: str
    """SHA-256 of the secret."""
    sealed: bytes
    scram: dict[str, ScramRecord]

    def until(self, expires_ms: int) -> DelegationRecord:
        return msgspec.structs.replace(self, expires_ms=expires_ms)


class Acl(msgspec.Struct, frozen=True):
    """One right, as Kafka's tools show it."""

    resource: Resource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: int
    """An `Operation`, or ALL_OPERATIONS."""
    permission: Permission

    @property
    def digest(self) -> str:
        """Its key: the same right is the same key, whoever writes it, however often."""
        return sha256(msgspec.json.encode(self)).hexdigest()[:32]

    @property
    def words(self) -> str:
        operation = "All" if self.operation == ALL_OPERATIONS else word(Operation(self.operation))
        name = f"{self.name}*" if self.pattern is PatternType.PREFIXED else self.name
        place = "" if self.host == ANY_NAME else f" from {self.host}"
        verb = "may" if self.permission is Permission.ALLOW else "must not"
        return f"{self.principal} {verb} {operation} {word(self.resource)} {name}{place}"


class PolicyAcl(Acl, frozen=True):
    """One that a queue's policy stands for (A42): it comes and goes with the policy."""

    queue: str = ""

    @property
    def words(self) -> str:
        return f"{super().words} (the policy of queue {self.queue})"


def tenant_rights(name: str, prefix: str) -> list[Acl]:
    return [
        Acl(kind, prefix, PatternType.PREFIXED, f"User:{name}", ANY_NAME, ALL_OPERATIONS, Permission.ALLOW)
        for kind in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
    ]


def word(value: Operation | Resource) -> str:
    """DESCRIBE_CONFIGS is DescribeConfigs, as in Kafka's tools."""
    return "".join(part.title() for part in value.name.split("_"))


def encode(value: msgspec.Struct | list[str]) -> bytes:
    return msgspec.json.encode(value)


def user_key(name: str) -> str:
    return USERS + quote(name, safe="")


def scram_key(name: str, mechanism: str) -> str:
    return f"{SCRAM}{quote(name, safe='')}/{mechanism}"


def token_key(digest: str, record: TokenRecord) -> str:
    return (TOKENS if record.rights is None else NARROWER) + digest


def acl_key(acl: Acl) -> str:
    return ACLS + acl.digest


def name_in(key: str) -> str:
    """The name in the rest of a key, after its space."""
    return unquote(key)


def checked_name(name: str) -> str:
    """A10. Raises UNACCEPTABLE_CREDENTIAL."""
    problem = name_problem(name)
    if problem is not None:
        raise HeadraceError(ErrorKind.UNACCEPTABLE_CREDENTIAL, f"{name!r} can't be a user's name: {problem}")
    return name


def name_problem(name: str) -> str | None:
    """A10: no surprise by any way of comparing it: printable, NFC and NFKC alike, no spaces at its ends."""
    if not 1 <= len(name) <= MAX_NAME:
        return f"it has {len(name)} characters; 1 to {MAX_NAME} are allowed"
    if name == "ANONYMOUS":
        return "that is what those are called who have no name"
    if any(character in ",=:" for character in name):
        return "it has one of , = :"
    if not name.isprintable() or name != name.strip():
        return "it has characters that can't be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it is written with characters that look like others (SASLprep would change it)"
    return None
