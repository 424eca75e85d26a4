"""Codec: health, metrics and this very document."""

from __future__ import annotations

from typing import Literal

import msgspec


class Finding(msgspec.Struct, kw_only=True):
    check: str
    severity: Literal["warning", "error"]
    """error: requests should be sent elsewhere."""
    detail: str
    since_ms: int
    hint: str


class ShownHealth(msgspec.Struct, kw_only=True):
    status: Literal["ok", "degraded", "not-ready"]
    sentence: str
    findings: list[Finding]
    answered_by: int
    checked_ms: int


class ShownVersion(msgspec.Struct, kw_only=True):
    version: str
    api: str
    broker_id: int
    console: str | None
    """Changes when the console was built anew; null when it is off."""


class ShownSession(msgspec.Struct, kw_only=True):
    principal: str
    mode: str
    authenticated: bool
    login: bool
    """Nothing else is answered before somebody logs in."""
    address: str
    may: list[str]
    """Operations that the principal may use on the cluster, or on what the query names; `*` is all of them."""
    csrf: str | None
    """Of a session in a cookie: what x-headrace-csrf of each change has to be."""


class NewSession(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A name and a password; or a token; or what `headrace open` has in its link."""

    user: str = ""
    password: str = ""
    token: str = ""
    link: str = ""


class MadeSession(msgspec.Struct, kw_only=True):
    principal: str
    csrf: str
    expires_ms: int


class MadeLink(msgspec.Struct, kw_only=True):
    path: str
    lasts_ms: int
