"""Door: what a change made in the console was about, before and after (W22): the nearest thing in its path that can be looked at, by the very GET that everybody
has, with the rights of whoever makes the change.

Only for what holds neither messages nor secrets. Numbers that move by themselves are left out: an audit tells what somebody did.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from headrace.core.errors import HeadraceError
from headrace.core.moments import MOMENTS
from headrace.http.messages import Answer, Request, Response
from headrace.http.router import Match, Router

THINGS = frozenset(("topics", "queues", "groups", "subscriptions", "schedules", "webhooks"))
"""Under /api/v1."""
MOST_CHARS = 1_000
UNTOLD = frozenset(("value", "url", "headers"))
"""Of a schedule its message, of a webhook where it goes: what may hold a secret."""
MOVING = frozenset((
    "messages", "bytes", "lag", "end_offset", "start_offset", "ready", "in_flight", "delayed", "rate", "members", "last_detail", "last_status", "delivered",
    "failed", "concurrency", "circuit", "leader", "isr", "partitions_led",
))  # fmt: skip
"""Numbers that move by themselves."""


class BeforeAfter:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def look(self, request: Request) -> dict[str, str]:
        """Field by field, as JSON; empty: there is no such thing, or nobody may look at it."""
        path = _thing(request)
        found = self._router.resolve("GET", path) if path else None
        if not isinstance(found, Match):
            return {}
        headers = {name: value for name, value in request.headers.items() if not name.startswith(b"content-")}
        asked = Request(
            "GET", path, "", headers, b"", found.params, request.peer,
            received_ms=request.received_ms, deadline_ms=request.deadline_ms, route=found.route.template,
            request_id=request.request_id,
        )  # fmt: skip
        try:
            answer = found.route.handler(asked)
            shown = answer if isinstance(answer, Answer) else await answer
        except HeadraceError:
            return {}
        if shown.status != 200 or not isinstance(shown, Response):
            return {}
        document = msgspec.json.decode(shown.body)
        return _fields(document) if isinstance(document, dict) else {}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Only what is not the same; of what was made or is gone, everything."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        word: {name: fields[name] for name in names if name in fields}
        for word, fields in (("before", before), ("after", after))
        if any(name in fields for name in names)
    }


def _thing(request: Request) -> str:
    """`/api/v1/groups/billing` of `/api/v1/groups/billing/seek`; of what is being made, what will be there."""
    segments = request.path.split("/")
    if len(segments) < 4 or segments[1:3] != ["api", "v1"] or segments[3] not in THINGS:
        return ""
    if len(segments) > 4:
        return "/".join(segments[:5])
    try:
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    name = body.get("name") if isinstance(body, dict) else None
    return f"{request.path}/{quote(name, safe='')}" if isinstance(name, str) and name else ""


def _fields(document: Mapping[str, object], before: str = "") -> dict[str, str]:
    """Of what is within another thing, `config.visibility_ms`."""
    found: dict[str, str] = {}
    for name, value in document.items():
        if not _is_steady(name) or (not before and name in UNTOLD):
            continue
        if isinstance(value, dict) and not before:
            found |= _fields(value, f"{name}.")
        else:
            found[before + name] = msgspec.json.encode(_steady(value)).decode()[:MOST_CHARS]
    return found


def _is_steady(name: str) -> bool:
    return not (
        name in MOVING or name.endswith(("_age_ms", "_per_s")) or name in MOMENTS or f"{name}_ms" in MOMENTS
    )


def _steady(value: object) -> object:
    if isinstance(value, dict):
        return {name: _steady(one) for name, one in value.items() if _is_steady(name)}
    return [_steady(one) for one in value] if isinstance(value, list) else value
