"""What a collector does with OTLP over HTTP: takes requests in OpenTelemetry's own protobuf, and keeps the spans for a test to look at."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from webhook_endpoint import until

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


class Seen(NamedTuple):
    """One span, as it came."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[str, ...]
    """Span ids."""
    is_error: bool
    text: str
    """All of it, to see that something is not in it."""


class Collector:
    def __init__(self) -> None:
        self.spans: list[Seen] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            about = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Seen(
                            about.get("service.name", ""),
                            span.name,
                            KINDS[span.kind],
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            _attributes(span.attributes),
                            tuple(link.span_id.hex() for link in span.links),
                            span.status.code == 2,
                            str(span),
                        )
                    )

    def wait_for(self, name: str, count: int = 1, **attributes: Any) -> list[Seen]:
        """Spans of this name and these attributes (with _ for .), as soon as there are so many."""

        def found() -> list[Seen]:
            wanted = {key.replace("__", "."): value for key, value in attributes.items()}
            return [
                span for span in list(self.spans)
                if span.name == name and wanted.items() <= span.attributes.items()
            ]  # fmt: skip

        until(lambda: len(found()) >= count)
        return found()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
