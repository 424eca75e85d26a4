"""Codec: rights in words, one by one and as roles."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Pattern = Literal["literal", "prefixed"]
Permission = Literal["allow", "deny"]


class GivenAcl(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    principal: Annotated[str, Meta(max_length=260)]
    """User:name."""
    operation: str
    """In Kafka's words, or All."""
    resource: str
    name: Annotated[str, Meta(max_length=1_024)] = ""
    """The cluster needs none."""
    pattern: Pattern = "literal"
    permission: Permission = "allow"
    host: Annotated[str, Meta(max_length=260)] = "*"


class ShownAcl(msgspec.Struct, kw_only=True):
    principal: str
    operation: str
    resource: str
    name: str
    pattern: Pattern
    permission: Permission
    host: str
    policy: str | None
    """The queue whose SQS policy this stands for: it comes and goes with that one."""


class GivenRole(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    principal: Annotated[str, Meta(max_length=260)]
    """User:name."""
    role: Literal["viewer", "reader", "operator", "admin"]
    prefix: Annotated[str, Meta(max_length=249)] = ""
    """Only topics and groups whose names begin so."""
    host: Annotated[str, Meta(max_length=260)] = "*"


class AclChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    items: Annotated[list[GivenAcl], Meta(max_length=1_000)] = []
    roles: Annotated[list[GivenRole], Meta(max_length=20)] = []
    dry_run: bool = False


class AclPage(msgspec.Struct, kw_only=True):
    items: list[ShownAcl]
    next_cursor: str | None
    total: int
    """On all pages."""


class ChangedAcls(msgspec.Struct, kw_only=True):
    items: list[ShownAcl]
    """What was given that was not there before, or is gone; on a dry run, what would be."""


class ShownRole(msgspec.Struct, kw_only=True):
    name: str
    rights: list[ShownAcl]
    """Of everything; `User:` stands for whoever gets it."""


class RolePage(msgspec.Struct, kw_only=True):
    items: list[ShownRole]
    next_cursor: str | None
