"""Codec: our trace contexts as OpenTelemetry's, and back. Imported where spans are made, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from headrace.core.trace_context import TraceContext, trace_context

MAX_LINKS = 128
"""As many as the SDK keeps by default."""


def remote(context: TraceContext) -> SpanContext:
    """The span that a message or a request was sent in."""
    state = TraceState.from_header([context.state.decode()]) if context.state is not None else None
    return SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), True, TraceFlags(context.flags), state
    )


def within(context: TraceContext | None) -> Context | None:
    """Where a span begins that continues this one; None: wherever it is started."""
    return None if context is None else set_span_in_context(NonRecordingSpan(remote(context)))


def links_to(contexts: Iterable[TraceContext | None]) -> list[Link]:
    """Each once."""
    known = [context for context in dict.fromkeys(contexts) if context is not None]
    return [Link(remote(context)) for context in known[:MAX_LINKS]]


def sent_in(span: SpanContext) -> TraceContext | None:
    """What a message or a request says that is sent in this span."""
    if not span.is_valid:
        return None
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    state = span.trace_state.to_header() if span.trace_state else ""
    return trace_context(parent.encode(), state.encode("ascii", "ignore") or None)
