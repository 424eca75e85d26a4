"""Adapter: OpenTelemetry's own exporter, of the extra headrace[otel]. Whoever wants no spans imports nothing of this.

The variables that OpenTelemetry has for it (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER,
OTEL_EXPORTER_OTLP_HEADERS, …_CERTIFICATE, …_TIMEOUT, OTEL_BSP_…) are read by its SDK and mean here what they mean everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

PATH = "/v1/traces"
PATIENCE_SECONDS = 3.0
"""For so long the end of a process tries to get its last spans to a collector that refuses them."""


class SpanExport:
    def __init__(self, service: str, endpoint: str = "", about: Mapping[str, str] | None = None) -> None:
        """Spans go to `endpoint`, as in http://collector:4318 or http://collector:4318/v1/traces; without one to where
        OTEL_EXPORTER_OTLP_ENDPOINT says. `service` is its name unless the environment has another."""
        resource = Resource.create(dict(about or {}))
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        url = endpoint if not endpoint or urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + PATH
        self._exporter = OTLPSpanExporter(endpoint=url or None)
        # Its own way out is left to us: it tries for ten seconds.
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(self._exporter))

    def end(self) -> None:
        """Send what is left; blocks until the collector has it, or `give_up`."""
        self.provider.shutdown()

    def give_up(self) -> None:
        """From another thread: no further try."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # theirs has no types
