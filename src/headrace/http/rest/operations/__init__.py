"""Codec: what every public route takes and answers, by method and path: the source of the OpenAPI document."""

from __future__ import annotations

from headrace.http.openapi import Operations
from headrace.http.rest.operations import (
    administration,
    letters,
    looking,
    messages,
    moves,
    queues,
    security,
    service,
    webhooks,
)

OPERATIONS: Operations = {
    **messages.OPERATIONS,
    **looking.OPERATIONS,
    **letters.OPERATIONS,
    **queues.OPERATIONS,
    **moves.OPERATIONS,
    **administration.OPERATIONS,
    **webhooks.OPERATIONS,
    **security.OPERATIONS,
    **service.OPERATIONS,
}
