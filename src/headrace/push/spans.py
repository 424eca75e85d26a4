"""Driver: spans of webhook deliveries, where an operator has asked for them (docs/tracing.md). Imported only then.

Each attempt is `process Q` (a consumer's, which continues the trace of its message, or links to those of a batch) with the request to the
endpoint inside, under whose context the endpoint goes on. Of the URL only the host is told: the rest may hold a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from headrace.core.trace_context import context_of
from headrace.net.span_contexts import links_to, sent_in, within
from headrace.push.bodies import PushMessage
from headrace.push.spec import WebhookSpec


class DeliverySpan:
    """One attempt."""

    __slots__ = ("_process", "_request")

    def __init__(self, process: Span, request: Span) -> None:
        self._process = process
        self._request = request

    def headers(self) -> dict[str, str]:
        """What the request says of the trace."""
        sent = sent_in(self._request.get_span_context())
        return {} if sent is None else sent.http_headers()

    def end(self, outcome: str, status: int, *, taken: bool) -> None:
        """`status` is 0 when there was no answer."""
        if status:
            self._request.set_attribute("http.response.status_code", status)
        if not taken:
            for span in (self._process, self._request):
                span.set_attribute("error.type", str(status) if status else outcome)
                span.set_status(Status(StatusCode.ERROR, outcome))
        self._request.end()
        self._process.end()


class DeliverySpans:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, spec: WebhookSpec, messages: Sequence[PushMessage]) -> DeliverySpan:
        contexts = [context_of(message.record.headers) for message in messages]
        about: dict[str, AttributeValue] = {
            "messaging.system": "headrace",
            "messaging.destination.name": spec.queue,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "headrace.webhook": spec.name,
            "headrace.delivery": max(message.attempt for message in messages),
        }
        if len(messages) > 1:
            about["messaging.batch.message_count"] = len(messages)
        else:
            about["messaging.message.id"] = messages[0].id
        process = self._tracer.start_span(
            f"process {spec.queue}",
            within(contexts[0] if len(set(contexts)) == 1 else None),
            SpanKind.CONSUMER,
            about,
            links_to(contexts),
        )
        target = urlsplit(spec.url)
        request = self._tracer.start_span(
            "POST",
            trace.set_span_in_context(process),
            SpanKind.CLIENT,
            {
                "http.request.method": "POST",
                "url.scheme": target.scheme,
                "server.address": target.hostname or "",
                "server.port": target.port or (443 if target.scheme == "https" else 80),
            },
        )
        return DeliverySpan(process, request)
