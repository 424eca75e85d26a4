"""Codec: health, metrics and this very document."""

from __future__ import annotations

from typing import Any

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


OPERATIONS: Operations = {
    ("GET", "/livez"): _text("Does the event loop answer?", VERBOSE),
    ("GET", "/readyz"): _text("Will requests be served?", VERBOSE),
    ("GET", "/healthz"): _text("As /readyz", VERBOSE),
    ("GET", "/health"): _text("As /readyz", VERBOSE),
    ("GET", "/metrics"): _text("Metrics for Prometheus"),
    ("GET", "/openapi.json"): Operation("This document", "service", {200: dict[str, Any]}, problems=()),
}
