"""Kernel of the SDK's tracing: whether there is any. Off, nothing of OpenTelemetry is imported and no message costs a call more."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from headrace.core.errors import ErrorKind, HeadraceError

if TYPE_CHECKING:
    from headrace.client.spans import ClientSpans

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def client_spans(choice: Any, bootstrap: str) -> ClientSpans | None:
    """`choice` as `Client` takes it. Raises HeadraceError: the extra is not installed."""
    if choice is False or (choice is None and not _is_set_up()):
        return None
    try:
        from headrace.client.spans import ClientSpans
    except ImportError:
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER, "tracing needs OpenTelemetry: pip install 'headrace[otel]'"
        ) from None
    provider: Any = None if choice is None or choice is True else choice
    own = None
    if choice is True and not _is_set_up() and any(os.environ.get(name) for name in ENDPOINTS):
        from headrace.net.otlp import SpanExport

        own = SpanExport("headrace-client")
        provider = own.provider
    return ClientSpans(provider, bootstrap, own)


def _is_set_up() -> bool:
    """The program has imported OpenTelemetry and given it a provider: whoever has not can have no spans."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return False
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider)
