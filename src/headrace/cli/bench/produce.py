"""Command: `headrace bench produce`."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.load import LoadPlan, produce_load
from headrace.cli.measuring import (
    BrokerMeter,
    Measurement,
    RequestCount,
    bench_topic,
    common_options,
    percentiles,
    show_measurement,
)
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, Duration, Rate, Size
from headrace.cli.progress import progress


class ProduceMeasurement(Measurement):
    SCHEMA: ClassVar[str] = "headrace.bench.produce/v1"
    acks: str
    batch_bytes: int
    compression: str


@leaf(ProduceMeasurement, Shape.ONE, broker=True)
@common_options
@click.option("-n", "--messages", type=Count(), default="200k", show_default=True)
@click.option("-s", "--size", type=Size(), default="1KiB", show_default=True, help="Of each message.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--batch",
    "batch_bytes",
    type=Size(),
    default="1MB",
    show_default=True,
    help="At most so much in a request.",
)
@click.option(
    "--linger",
    "linger_ms",
    type=Duration(),
    default="5ms",
    show_default=True,
    help="Wait so long for a fuller batch.",
)
@click.option(
    "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none"
)
@click.option("--idempotent", is_flag=True, help="With an idempotent producer.")
@click.option("--rate", type=Rate(), help="Not faster than this, as in 1000/s.")
def command(
    run: Invocation,
    topic: str,
    partitions: int,
    keep: bool,
    pid: int | None,
    messages: int,
    size: int,
    acks: str,
    batch_bytes: int,
    linger_ms: int,
    compression: str,
    idempotent: bool,
    rate: float | None,
) -> None:
    """Publish as fast as it goes, and measure until the last acknowledgement.

    Latency is from handing a message to the client until its acknowledgement; at full speed most of it is queueing in
    the client. `bench latency` measures what one message takes.
    """
    counter = RequestCount()
    settings: dict[str, Any] = {
        "acks": acks,
        "batch.size": batch_bytes,
        "batch.num.messages": 1_000_000,
        "linger.ms": linger_ms,
        "compression.type": compression,
        "enable.idempotence": idempotent,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 512 * 1024,
        **counter.settings(),
    }
    link = run.link
    with bench_topic(link, topic, partitions, keep):
        producer = link.producer(settings)
        producer.list_topics(topic, timeout=link.timeout_s)
        meter = BrokerMeter(link, pid)
        meter.begin()
        with progress(run, "Publishing", messages) as advance:
            sent = produce_load(producer, LoadPlan(topic, messages, size, rate), advance)
        meter.end()
        row = ProduceMeasurement(
            topic=topic,
            messages=messages,
            bytes=messages * size,
            seconds=round(sent.seconds, 3),
            messages_per_second=round(messages / sent.seconds, 1),
            megabytes_per_second=round(messages * size / sent.seconds / 1e6, 2),
            latency=percentiles(sent.latencies_ms),
            broker=meter.cost(messages, messages * size, counter.settle(producer)),
            acks=acks,
            batch_bytes=batch_bytes,
            compression=compression,
        )
    show_measurement(run, row)
