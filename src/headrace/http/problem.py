"""Codec: refusals as RFC 9457 problem+json, from the one table of core.errors.

`code` is the stable name a program compares, `detail` and `hint` are for a person, `kafka_error` is the number
the Kafka door would have answered.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.messages import PROBLEM_JSON, Response, reason_phrase

TYPE_PREFIX = "https://headrace.dev/problems/"

_HINTS = {
    400: "GET /openapi.json says what this path takes.",
    404: "GET /openapi.json lists every path.",
    405: "GET /openapi.json lists every method of this path.",
    409: "Look at it first: it is not as this request expects.",
    413: "Send less at a time.",
    429: "Slow down, and try again.",
    500: "This is a bug in headrace; the broker's log says more.",
    503: "Try again in a moment.",
    504: "It may have happened nevertheless: look before you try again.",
}
"""Where the error itself has no better one."""

_encode = msgspec.json.Encoder().encode


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    hint: str = "",
    request_id: str = "",
    instance: str = "",
    kafka_error: int | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    extra: Mapping[str, object] | None = None,
) -> Response:
    document: dict[str, object] = {
        "type": TYPE_PREFIX + code.lower().replace("_", "-"),
        "title": reason_phrase(status),
        "status": status,
        "detail": detail,
        "code": code,
    }
    if instance:
        document["instance"] = instance
    if advice := hint or _HINTS.get(status, ""):
        document["hint"] = advice
    if request_id:
        document["request_id"] = request_id
        headers = (*headers, ("x-request-id", request_id))
    if kafka_error is not None:
        document["kafka_error"] = kafka_error
    if extra:
        document.update(extra)
    return Response(_encode(document), status, PROBLEM_JSON, headers)


def problem_of(error: HeadraceError, *, request_id: str = "", instance: str = "") -> Response:
    wait_s = getattr(error, "wait_s", 1)
    return problem_of_kind(
        error.kind, error.detail, hint=error.hint, request_id=request_id, instance=instance, wait_s=wait_s
    )


def problem_of_kind(
    kind: ErrorKind,
    detail: str = "",
    *,
    hint: str = "",
    request_id: str = "",
    instance: str = "",
    wait_s: int = 1,
) -> Response:
    """For machines that return Rejected(kind, detail) instead of raising."""
    info = kind.info
    # A client that may retry is told when; one second is what the retriable kinds (elections, loading) take.
    headers = (("retry-after", str(wait_s)),) if info.retriable and info.http_status in (429, 503) else ()
    return problem(
        info.http_status,
        kind.name,
        detail or kind.name.lower().replace("_", " "),
        hint=hint or info.hint,
        request_id=request_id,
        instance=instance,
        kafka_error=kind.kafka_code if kind.kafka_code != -1 else None,
        headers=headers,
    )
