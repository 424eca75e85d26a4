"""Driver: the SDK's spans, after OpenTelemetry's conventions for messaging. Imported when tracing is on (tracing.py).

`send T` (producer) is the span whose context a message carries, as `traceparent` and `tracestate`; it ends when the broker has it.
`process T` (consumer) lasts from handing a message out until the next one is asked for, or as long as a worker's function; it continues the
trace that the message carries, and links to it. Names of topics, queues and groups are told, and where a message lies; never what is in it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from headrace import __version__
from headrace.client.message import Message
from headrace.client.queue_client import QueueClient, Received
from headrace.client.subscription import Subscription
from headrace.core.errors import HeadraceError
from headrace.core.trace_context import TRACEPARENT, context_of
from headrace.net.span_contexts import links_to, sent_in, within

if TYPE_CHECKING:
    from headrace.net.otlp import SpanExport

KAFKA, QUEUES = "kafka", "headrace"
"""What speaks: the Kafka protocol, or REST."""
Attributes = dict[str, AttributeValue]
Pairs = list[tuple[str, bytes | None]]
Answered = Callable[[Any, Any], None]


class ClientSpans:
    def __init__(self, provider: TracerProvider | None, bootstrap: str, own: SpanExport | None) -> None:
        """Without a provider, that of the program. `own` ends with us."""
        self._tracer = trace.get_tracer("headrace", __version__, provider)
        self._own = own
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._server: Attributes = {"server.address": host or bootstrap}
        if port.isdecimal():
            self._server["server.port"] = int(port)

    def close(self) -> None:
        if self._own is not None:
            from headrace.net.otlp import PATIENCE_SECONDS

            giving_up = threading.Timer(PATIENCE_SECONDS, self._own.give_up)
            giving_up.start()
            self._own.end()
            giving_up.cancel()

    # -- sending -----------------------------------------------------------------------------------------------

    def _send(self, system: str, destination: str, size: int) -> Span:
        about = self._about(system, destination, "send", size)
        return self._tracer.start_span(f"send {destination}", kind=SpanKind.PRODUCER, attributes=about)

    def _about(self, system: str, destination: str, operation: str, size: int) -> Attributes:
        return {
            "messaging.system": system,
            "messaging.destination.name": destination,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.message.body.size": size,
            **self._server,
        }

    def producing(self, produce: Callable[..., None]) -> Callable[..., None]:
        """librdkafka's `produce`, in a span for each message. One that brings a context of its own keeps it."""

        def traced(
            topic: str,
            value: bytes | None,
            key: bytes | None,
            partition: int,
            answered: Answered,
            partitioner: None,
            timestamp_ms: int,
            pairs: Pairs | None,
        ) -> None:
            span: Span = trace.INVALID_SPAN
            told = answered
            if pairs is None or all(name != TRACEPARENT for name, _ in pairs):
                span = self._send(KAFKA, topic, len(value or b""))
                sent = sent_in(span.get_span_context())
                if sent is not None:
                    pairs = [*(pairs or ()), *sent.headers()]
                if span.is_recording():
                    told = _ending(span, answered)
            try:
                produce(topic, value, key, partition, told, partitioner, timestamp_ms, pairs)
            except BufferError:
                raise  # it is tried again, in a span of its own; nobody hears of this one
            except Exception as problem:
                _failed(span, problem)
                span.end()
                raise

        return traced

    def send(self, link: QueueClient, queue: str, record: dict[str, Any], size: int) -> str:
        """Over REST: the request is part of the trace as well."""
        headers: dict[str, Any] = record.get("headers") or {}
        if TRACEPARENT in headers:
            return link.send(record)
        span = self._send(QUEUES, queue, size)
        try:
            sent = sent_in(span.get_span_context())
            if sent is None:
                return link.send(record)
            named = sent.http_headers()
            message_id = link.send({**record, "headers": {**headers, **named}}, named)
            span.set_attribute("messaging.message.id", message_id)
            return message_id
        except Exception as problem:
            _failed(span, problem)
            raise
        finally:
            span.end()

    # -- processing --------------------------------------------------------------------------------------------

    def process(
        self, system: str, destination: str, headers: Any, size: int, about: Attributes
    ) -> tuple[Span, Context]:
        """Part of the trace the message carries, or else of the one we are in. Both are linked to."""
        context = context_of(headers)
        links = links_to([context])
        here = trace.get_current_span().get_span_context()
        if links and here.is_valid:
            links.append(Link(here))
        span = self._tracer.start_span(
            f"process {destination}",
            within(context),
            SpanKind.CONSUMER,
            {**self._about(system, destination, "process", size), **about},
            links,
        )
        return span, trace.set_span_in_context(span)

    def working(self, queue: str, call: Callable[[Received], Any]) -> Callable[[Received], Any]:
        """A worker's function, in a span for each message."""

        def traced(received: Received) -> Any:
            about: Attributes = {
                "messaging.message.id": received.id,
                "headrace.delivery": received.delivery,
            }
            span, context = self.process(QUEUES, queue, received.headers, len(received.value or b""), about)
            token = contexts.attach(context)
            try:
                return call(received)
            except Exception as problem:
                _failed(span, problem)
                raise
            finally:
                contexts.detach(token)
                span.end()

        return traced


class TracedSubscription(Subscription):
    """Each message is processed in a span, which is the current one until the next message is asked for."""

    def __init__(self, spans: ClientSpans, *given: Any, group: str | None, **named: Any) -> None:
        self._spans = spans
        self._about: Attributes = {} if group is None else {"messaging.consumer.group.name": group}
        self._current: Span | None = None
        self._token: Any = None
        self._is_entered = False
        super().__init__(*given, group=group, **named)

    def _begin(self, message: Message) -> Message:
        topic, partition = message.place
        about: Attributes = {
            **self._about,
            "messaging.destination.partition.id": str(partition),
            "messaging.kafka.offset": message.offset,
        }
        span, context = self._spans.process(KAFKA, topic, message.headers, len(message.value or b""), about)
        self._current, self._token = span, contexts.attach(context)
        return message

    def _end(self, problem: BaseException | None = None) -> None:
        span, self._current = self._current, None
        if span is None:
            return
        if problem is not None:
            _failed(span, problem)
        # Not where another task or thread ends it: there it never was the current one.
        if trace.get_current_span() is span:
            contexts.detach(self._token)
        span.end()

    def __iter__(self) -> Iterator[Message]:
        messages = super().__iter__()
        try:
            while True:
                self._end()
                message = next(messages, None)
                if message is None:
                    return
                yield self._begin(message)
        finally:
            # Left in the middle, by a break or by an exception: `with` is told which, and a message is not finished by leaving.
            if not self._is_entered:
                self._end()

    def __next__(self) -> Message:
        self._end()
        for message in super().__iter__():
            return self._begin(message)
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self._end()
        return self._begin(await super().__anext__())

    def abandon(self) -> None:
        self._end()
        super().abandon()

    def close(self) -> None:
        self._end()
        super().close()

    def __enter__(self) -> Subscription:
        self._is_entered = True
        return super().__enter__()

    async def __aenter__(self) -> Subscription:
        self._is_entered = True
        return await super().__aenter__()

    async def aclose(self) -> None:
        self._end()
        await super().aclose()

    def __exit__(self, kind: Any, value: BaseException | None, trace_: Any) -> None:
        self._end(value)
        super().__exit__(kind, value, trace_)

    async def __aexit__(self, kind: Any, value: BaseException | None, trace_: Any) -> None:
        self._end(value)
        await super().__aexit__(kind, value, trace_)


def _ending(span: Span, answered: Answered) -> Answered:
    def told(error: Any, message: Any) -> None:
        if error is None:
            span.set_attribute("messaging.destination.partition.id", str(message.partition()))
            offset = message.offset()
            if offset is not None and offset >= 0:
                span.set_attribute("messaging.kafka.offset", offset)
        else:
            span.set_attribute("error.type", str(error.name()))
            span.set_status(Status(StatusCode.ERROR, str(error.name())))
        span.end()
        answered(error, message)

    return told


def _failed(span: Span, problem: BaseException) -> None:
    """What kind of problem, and not what it says: that may quote a message."""
    name = problem.kind.name if isinstance(problem, HeadraceError) else type(problem).__qualname__
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))
