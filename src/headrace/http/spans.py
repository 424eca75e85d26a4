"""Door: a span for each request of REST and SQS, where an operator has asked for them (docs/tracing.md). Imported only then.

A server span continues the trace that the request names in `traceparent`. It tells the route, the queue or topic and what came of it; never a
body, a key, a receipt or who asked. Health, metrics, pages and looking at the cluster, which the console does all the time, have none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from headrace.core.errors import HeadraceError
from headrace.core.trace_context import trace_context
from headrace.http.messages import Answer, Handler, Request
from headrace.http.sqs.call import SqsCall
from headrace.net.span_contexts import within
from headrace.security.rights import Rights

_DATA = ("/topics/", "/queues/")
_SQS = ("/", "/{account}/{queue}")
_FAILED = 500
MAX_NAME_CHARS = 256
"""Of a topic or queue that a client names; there need not be one of that name."""

_SENDS = (
    "/topics/{topic}/records",
    "/topics/{topic}/messages",
    "/queues/{queue}/messages",
    "/queues/{queue}/batch",
)
_SETTLES = ("/ack", "/nack", "/reject", "/extend", "/settle")
_SQS_OPERATIONS = {"Send": "send", "Receive": "receive", "Delete": "settle", "Change": "settle"}


class ServerSpans:
    def __init__(self, tracer: Tracer, guard: Callable[[Rights, Handler], Handler]) -> None:
        """Stands before the guard: what it refuses was asked for, too."""
        self._tracer = tracer
        self._guard = guard

    def __call__(self, rights: Rights, handler: Handler) -> Handler:
        guarded = self._guard(rights, handler)

        def traced(request: Request) -> Answer | Awaitable[Answer]:
            if not is_traced(request):
                return guarded(request)
            span = self._begin(request)
            try:
                answer = guarded(request)
            except Exception as problem:
                _refused(span, problem)
                raise
            if isinstance(answer, Answer):
                _answered(span, answer)
                return answer
            return _awaited(span, answer)

        return traced

    def _begin(self, request: Request) -> Span:
        about: dict[str, AttributeValue] = {
            "http.request.method": request.method,
            "http.route": request.route,
            "headrace.request.id": request.request_id,
        }
        if request.route not in _SQS:
            about |= _messaging(request)
        context = trace_context(request.headers.get(b"traceparent"), request.headers.get(b"tracestate"))
        return self._tracer.start_span(
            f"{request.method} {request.route}", within(context), SpanKind.SERVER, about
        )

    @staticmethod
    def sqs(action: str, call: SqsCall) -> None:
        """The door has found out what is asked for."""
        span = trace.get_current_span()
        queue = str(call.parameters.get("QueueName") or call.parameters.get("QueueUrl") or "")
        queue = queue.rpartition("/")[2][:MAX_NAME_CHARS]
        span.update_name(f"{action} {queue}".rstrip())
        span.set_attributes({"rpc.system": "aws-api", "rpc.service": "SQS", "rpc.method": action})
        if queue:
            span.set_attributes({"messaging.system": "aws_sqs", "messaging.destination.name": queue})
        operation = next(
            (word for verb, word in _SQS_OPERATIONS.items() if action.startswith(f"{verb}Message")), ""
        )
        if operation:
            span.set_attribute("messaging.operation.type", operation)
            span.set_attribute("messaging.operation.name", action)


def is_traced(request: Request) -> bool:
    route = request.route
    if route.startswith(_DATA):
        return True
    if route in _SQS:
        return (
            request.method == "POST"
            or b"x-amz-target" in request.headers
            or "Action=" in request.query_string
        )
    return route.startswith("/api/") and request.method != "GET"


def _messaging(request: Request) -> dict[str, AttributeValue]:
    name = request.params.get("queue") or request.params.get("topic") or ""
    if not name:
        return {}
    about: dict[str, AttributeValue] = {
        "messaging.system": "headrace",
        "messaging.destination.name": name[:MAX_NAME_CHARS],
    }
    operation = ""
    if request.method == "POST" and request.route in _SENDS:
        operation = "send"
    elif request.route.endswith("/receive"):
        operation = "receive"
    elif request.route.startswith("/queues/") and (
        request.method == "DELETE" or request.route.endswith(_SETTLES)
    ):
        operation = "settle"
    if operation:
        about |= {"messaging.operation.type": operation, "messaging.operation.name": operation}
    return about


def _awaited(span: Span, work: Awaitable[Answer]) -> Coroutine[Any, Any, Answer]:
    async def answered() -> Answer:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                answer = await work
            except Exception as problem:
                _refused(span, problem)
                raise
            except BaseException:
                span.set_attribute("error.type", "cancelled")
                span.end()
                raise
        _answered(span, answer)
        return answer

    return answered()


def _answered(span: Span, answer: Answer) -> None:
    span.set_attribute("http.response.status_code", answer.status)
    if answer.status >= _FAILED:
        span.set_attribute("error.type", str(answer.status))
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _refused(span: Span, problem: Exception) -> None:
    """Which kind, and not what it says: that may quote the request."""
    status, name = _FAILED, type(problem).__qualname__
    if isinstance(problem, HeadraceError):
        status, name = problem.kind.info.http_status, problem.kind.name
    span.set_attribute("http.response.status_code", status)
    span.set_attribute("error.type", name)
    if status >= _FAILED:
        span.set_status(Status(StatusCode.ERROR, name))
    span.end()
