"""Hooks of schemathesis: most requests go to things that are there, so that they get past "there is no such thing"."""

from __future__ import annotations

from typing import Any

import schemathesis

FEW = 8
THERE = {
    "topic": "fuzz-topic",
    "queue": "fuzz-queue",
    "group": "fuzz-group",
    "webhook": "fuzz-hook",
    "name": "fuzz-schedule",
}


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    if not path_parameters:
        return path_parameters
    # By what was drawn, not by chance: a failure can be run again.
    return {
        name: THERE[name] if name in THERE and len(str(value)) % 4 else value
        for name, value in path_parameters.items()
    }


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """A long poll of an empty queue is right to last a minute, and here nobody has the time; and `fields` leaves out what
    the document says is always there."""
    return (
        {name: value for name, value in query.items() if name not in ("wait", "fields")} if query else query
    )


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """A thousand partitions are allowed, and take a small machine a while."""
    if isinstance(body, dict) and isinstance(body.get("partitions"), int) and body["partitions"] > FEW:
        return {**body, "partitions": FEW}
    return body
