"""Codec: users, rights and the mode of security."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class ShownTenant(msgspec.Struct, kw_only=True):
    name: str
    """Of its user."""
    prefix: str
    """With which the names of all that is its own begin."""
    enabled: bool
    created_ms: int
    topics: int
    produce: float | None
    consume: float | None
    requests: float | None


class MadeTenant(ShownTenant, kw_only=True):
    token: str
    """Shown once."""


class TenantPage(msgspec.Struct, kw_only=True):
    items: list[ShownTenant]
    next_cursor: str | None


class SecurityStatus(msgspec.Struct, kw_only=True):
    mode: str
    since_ms: int
    by: str
    users: int
    rights: int
    super_users: list[str]
    broker: int
    revision: int
    unreadable: list[str]
    """Keys of the coordinator that are not what they should be; they give nobody anything."""
    denied: int
    failed_logins: int


class ShownUser(msgspec.Struct, kw_only=True):
    name: str
    enabled: bool
    created_ms: int
    mechanisms: list[str]
    super: bool


class UserPage(msgspec.Struct, kw_only=True):
    items: list[ShownUser]
    next_cursor: str | None


class TokenRight(msgspec.Struct, forbid_unknown_fields=True):
    """One thing that a token is for."""

    operation: str
    """In Kafka's words, or All."""
    resource: str
    name: Annotated[str, Meta(max_length=249)] = ""
    """`orders*` is everything that begins so; `*` is everything. The cluster has none."""


class ShownToken(msgspec.Struct, kw_only=True):
    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int
    last_used_ms: int | None
    """To the hour at brokers where it was not used; null: never."""
    rights: list[TokenRight] | None
    """What it is for; null: whatever its owner may."""


class MadeToken(ShownToken, kw_only=True):
    token: str


class TokenPage(msgspec.Struct, kw_only=True):
    items: list[ShownToken]
    next_cursor: str | None


class ShownKey(msgspec.Struct, kw_only=True):
    id: str
    owner: str
    name: str
    created_ms: int
    last_used_ms: int | None
    """To the hour at brokers where it was not used; null: never."""


class MadeKey(ShownKey, kw_only=True):
    secret: str


class KeyPage(msgspec.Struct, kw_only=True):
    items: list[ShownKey]
    next_cursor: str | None


class Denied(msgspec.Struct):
    principal: str
    operation: str
    resource: str
    name: str
    count: int
    last_ms: int
    host: str
    token: str
    """The id of the token that was shown, which may less than its owner; empty: none was."""
    still: bool
    """It would be denied now, too."""


class Nameless(msgspec.Struct):
    host: str
    client: str
    count: int
    last_ms: int


class AtBroker(msgspec.Struct):
    broker: int
    mode: str = ""
    revision: int = -1
    """Of what it knows about users, rights and the mode."""
    problem: str = ""
    """Why it could not be asked."""


class DenialList(msgspec.Struct, kw_only=True):
    broker: int
    """That was asked."""
    denied: list[Denied]
    nameless: list[Nameless]
    brokers: list[AtBroker]
    """What each of them knows."""


class BrokerKeys(msgspec.Struct):
    broker: int
    keys: list[str]
    """Marks of the keys in its file, the one that seals first; none: it has no such file."""
    problem: str = ""
    """Why it could not be asked."""


class SealingKeys(msgspec.Struct):
    brokers: list[BrokerKeys]


class Resealed(msgspec.Struct, kw_only=True):
    key: str
    """The mark of the key under which everything is sealed now."""
    resealed: int
    """So many were not, before."""
    unreadable: list[str]
    """What no key here opens, and stays as it is."""


class Grant(msgspec.Struct, kw_only=True):
    principal: str
    operation: str
    resource: str
    name: str
    pattern: str


class AccessExplanation(msgspec.Struct, kw_only=True):
    allowed: bool
    rule: str
    granted_by: list[Grant]
