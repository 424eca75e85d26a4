"""A trace goes through Spark: the source shows the context that the SDK wrote, the sink writes it, and a subscriber goes on with it."""

from __future__ import annotations

import uuid
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headrace import Client
from headrace.testing.broker_process import BrokerProcess


def test_a_trace_survives_spark(spark: Any, broker: BrokerProcess, topic: str, client: Any) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    sink = f"t{uuid.uuid4().hex[:10]}"
    client.create_topic(sink, 1)
    with Client(broker.bootstrap, config={"log_level": 0}, tracing=provider) as sdk:
        sdk.publish(topic, "v").result(120)
        (sent,) = spans.get_finished_spans()
        context = sent.get_span_context()
        assert context is not None
        options = {"kafka.bootstrap.servers": broker.bootstrap}
        rows = (
            spark.read.format("headrace")
            .options(**options, subscribe=topic, includeHeaders="true")
            .load()
            .select("key", "value", "headers")
        )
        (row,) = rows.collect()
        shown = {one.key: bytes(one.value).decode() for one in row.headers}
        assert shown["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")
        rows.write.format("headrace").options(**options, topic=sink).mode("append").save()
        assert [message.text for message in sdk.subscribe(sink, follow=False)] == ["v"]
    process = spans.get_finished_spans()[-1]
    assert process.name == f"process {sink}" and process.parent is not None
    assert (process.parent.trace_id, process.parent.span_id) == (context.trace_id, context.span_id)
