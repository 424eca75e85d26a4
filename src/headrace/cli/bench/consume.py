"""Command: `headrace bench consume`."""

from __future__ import annotations

import time
from typing import ClassVar

import click
from confluent_kafka import KafkaError, TopicPartition

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.load import LoadPlan, produce_load
from headrace.cli.measuring import (
    BrokerMeter,
    Measurement,
    RequestCount,
    bench_topic,
    common_options,
    show_measurement,
)
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, Size
from headrace.cli.progress import Advance, progress
from headrace.client.errors import headrace_error

TAKE = 10_000


class ConsumeMeasurement(Measurement):
    SCHEMA: ClassVar[str] = "headrace.bench.consume/v1"


@leaf(ConsumeMeasurement, Shape.ONE, broker=True)
@common_options
@click.option("-n", "--messages", type=Count(), default="200k", show_default=True, help="At most so many.")
@click.option(
    "-s",
    "--size",
    type=Size(),
    default="1KiB",
    show_default=True,
    help="Of each, if the topic must be filled.",
)
@click.option(
    "--fetch",
    "fetch_bytes",
    type=Size(),
    default="50MiB",
    show_default=True,
    help="At most so much in a response.",
)
def command(
    run: Invocation,
    topic: str,
    partitions: int,
    keep: bool,
    pid: int | None,
    messages: int,
    size: int,
    fetch_bytes: int,
) -> None:
    """Read as fast as it goes. A topic with nothing in it is filled first, which is not measured."""
    link = run.link
    with bench_topic(link, topic, partitions, keep):
        spans = link.spans(link.need_topics([topic]))
        if not any(span.messages for span in spans.values()):
            with progress(run, "Filling the topic", messages) as advance:
                producer = link.producer({"linger.ms": 5, "batch.size": 1_000_000})
                produce_load(producer, LoadPlan(topic, messages, size), advance)
            spans = link.spans(link.need_topics([topic]))
        wanted = min(messages, sum(span.messages for span in spans.values()))
        counter = RequestCount()
        consumer = link.consumer(
            {
                "fetch.max.bytes": fetch_bytes,
                "max.partition.fetch.bytes": min(fetch_bytes, 10 << 20),
                "queued.max.messages.kbytes": 256 * 1024,
                "queued.min.messages": 1_000_000,
                **counter.settings(),
            }
        )
        meter = BrokerMeter(link, pid)
        meter.begin()
        consumer.assign([TopicPartition(*key, span.start) for key, span in spans.items()])
        with progress(run, "Reading", wanted) as advance:
            count, total, seconds = _read(consumer, wanted, link.timeout_s, advance)
        meter.end()
        row = ConsumeMeasurement(
            topic=topic,
            messages=count,
            bytes=total,
            seconds=round(seconds, 3),
            messages_per_second=round(count / seconds, 1),
            megabytes_per_second=round(total / seconds / 1e6, 2),
            latency=None,
            broker=meter.cost(count, total, counter.settle(consumer)),
        )
        consumer.close()
    show_measurement(run, row)


def _read(consumer: object, wanted: int, timeout_s: float, advance: Advance) -> tuple[int, int, float]:
    count = total = 0
    begin = time.perf_counter()
    while count < wanted:
        found = consumer.consume(min(TAKE, wanted - count), timeout=timeout_s)  # type: ignore[attr-defined]
        if not found:
            raise Failure(
                Exit.TIMEOUT, f"nothing came for {timeout_s:g}s after {count} messages", "--timeout 30s"
            )
        for message in found:
            error: KafkaError | None = message.error()
            if error is not None:
                raise failure_of(headrace_error(error))
            total += len(message)
        count += len(found)
        advance(len(found))
    return count, total, time.perf_counter() - begin
