"""Driver: this broker's spans, where somebody wants them. Off, nothing of OpenTelemetry is imported.

They are made at HTTP's doors and for webhooks, where the cost of a request is per message anyway; never for a batch of Kafka's.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.guarding import HttpGuard
from headrace.node.settings import Settings

if TYPE_CHECKING:
    from headrace.http.spans import ServerSpans
    from headrace.push.spans import DeliverySpans

log = logging.getLogger(__name__)

PATH = "/v1/traces"


def collector_of(environ: Mapping[str, str]) -> str:
    """Where OpenTelemetry's own variables want spans to go; empty: nowhere, or not by this protocol."""
    said = {
        name: environ.get(f"OTEL_{name}", "").strip().lower() for name in ("SDK_DISABLED", "TRACES_EXPORTER")
    }
    if said["SDK_DISABLED"] == "true" or said["TRACES_EXPORTER"] not in ("", "otlp"):
        return ""
    exact = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    at_all = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not exact and not at_all:
        return ""
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        log.warning(
            "no spans are sent: OTEL_EXPORTER_OTLP_PROTOCOL is %s, and here it is http/protobuf", protocol
        )
        return ""
    if not is_installed():
        log.warning(
            "no spans are sent although OTEL_EXPORTER_OTLP_ENDPOINT is set: pip install 'headrace[otel]'"
        )
        return ""
    return exact or at_all.rstrip("/") + PATH


def is_installed() -> bool:
    """Found, not imported."""
    return all(
        importlib.util.find_spec("opentelemetry") is not None and importlib.util.find_spec(name) is not None
        for name in ("opentelemetry.sdk", "opentelemetry.exporter")
    )


class NodeSpans:
    def __init__(self, settings: Settings) -> None:
        """Raises HeadraceError: the extra is not installed."""
        try:
            from headrace.net.otlp import SpanExport
        except ImportError as missing:
            raise HeadraceError(
                ErrorKind.INVALID_CONFIG, f"--otlp-endpoint: {missing}", "pip install 'headrace[otel]'"
            ) from None
        about = {"service.instance.id": f"broker-{settings.node_id}", "service.version": __version__}
        self._export = SpanExport("headrace", settings.otlp_endpoint, about)
        self._tracer = self._export.provider.get_tracer("headrace.broker", __version__)

    def before(self, guard: HttpGuard) -> ServerSpans:
        from headrace.http.spans import ServerSpans

        return ServerSpans(self._tracer, guard)

    def of_webhooks(self) -> DeliverySpans:
        from headrace.push.spans import DeliverySpans

        return DeliverySpans(self._tracer)

    async def close(self) -> None:
        from headrace.net.otlp import PATIENCE_SECONDS

        giving_up = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._export.give_up)
        await asyncio.to_thread(self._export.end)
        giving_up.cancel()
