"""Codec: health, metrics and this very document."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.http.openapi import FLAG, Operation, Operations, Param

VERBOSE = Param("verbose", "one line for each check", FLAG)


def _text(summary: str, *query: Param) -> Operation:
    return Operation(
        summary,
        "service",
        {200: str},
        query=query,
        content_type="text/plain",
        problems=(503,) if query else (),
    )


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


OPERATIONS: Operations = {
    ("GET", "/api/v1/health"): Operation(
        "What is not well, since when, and what to do",
        "service",
        {200: ShownHealth},
        problems=(),
        name="get_findings",
    ),
    ("GET", "/api/v1/version"): Operation("What this broker is", "service", {200: ShownVersion}, problems=()),
    ("GET", "/api/v1/session"): Operation(
        "Who asks, and what they may do",
        "service",
        {200: ShownSession},
        query=(
            Param("topic", "what they may do to this topic"),
            Param("group", "what they may do to this group or queue"),
        ),
        problems=(400,),
    ),
    ("POST", "/api/v1/session"): Operation(
        "Log in to the console",
        "service",
        {201: MadeSession},
        "Sets a cookie for twelve hours.",
        body=(NewSession,),
        problems=(400, 429),
    ),
    ("DELETE", "/api/v1/session"): Operation("Log out", "service", {204: None}, problems=()),
    ("POST", "/api/v1/session/links"): Operation(
        "A link that logs in once, within a minute", "service", {201: MadeLink}, problems=(400, 429)
    ),
    ("GET", "/livez"): _text("Does the event loop answer?", VERBOSE),
    ("GET", "/readyz"): _text("Will requests be served?", VERBOSE),
    ("GET", "/healthz"): _text("As /readyz", VERBOSE),
    ("GET", "/health"): _text("As /readyz", VERBOSE),
    ("GET", "/metrics"): _text("Metrics for Prometheus"),
    ("GET", "/openapi.json"): Operation("This document", "service", {200: dict[str, Any]}, problems=()),
}
