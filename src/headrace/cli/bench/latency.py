"""Command: `headrace bench latency`."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import click
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
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
from headrace.cli.parameters import Duration, Rate, Size
from headrace.cli.progress import Advance, progress
from headrace.client.errors import headrace_error

NUMBER_BYTES = 8


class LatencyMeasurement(Measurement):
    SCHEMA: ClassVar[str] = "headrace.bench.latency/v1"
    acks: str
    rate: float


@leaf(LatencyMeasurement, Shape.ONE, broker=True)
@common_options
@click.option("--rate", type=Rate(), default="1000/s", show_default=True, help="Messages per second.")
@click.option("-d", "--duration", "duration_ms", type=Duration(), default="10s", show_default=True)
@click.option("-s", "--size", type=Size(), default="100", show_default=True, help="Of each message.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
def command(
    run: Invocation,
    topic: str,
    partitions: int,
    keep: bool,
    pid: int | None,
    rate: float,
    duration_ms: int,
    size: int,
    acks: str,
) -> None:
    """Publish at a steady rate and time each message end to end.

    Open loop: each message has its moment, and latency counts from that moment, also when the client or the broker is
    late. So a stall shows up in every message it held up, and not in one alone.
    """
    count = max(1, int(rate * duration_ms / 1000))
    produces = RequestCount()
    link = run.link
    with bench_topic(link, topic, partitions, keep):
        ends = {key: span.end for key, span in link.spans(link.need_topics([topic])).items()}
        producer = link.producer({"acks": acks, "linger.ms": 0, **produces.settings()})
        producer.list_topics(topic, timeout=link.timeout_s)
        fetches = RequestCount()
        consumer = link.consumer({"fetch.wait.max.ms": 100, **fetches.settings()})
        consumer.assign([TopicPartition(*key, end) for key, end in ends.items()])
        consumer.poll(0.5)  # positioned before the first message leaves
        meter = BrokerMeter(link, pid)
        meter.begin()
        course = LatencyRun(count, rate, max(size, NUMBER_BYTES), topic)
        with progress(run, "Measuring", count) as advance:
            seconds = course.run(producer, consumer, link.timeout_s, advance)
        meter.end()
        row = LatencyMeasurement(
            topic=topic,
            messages=count,
            bytes=count * course.size,
            seconds=round(seconds, 3),
            messages_per_second=round(count / seconds, 1),
            megabytes_per_second=round(count * course.size / seconds / 1e6, 3),
            latency=percentiles(course.latencies_ms),
            broker=meter.cost(
                count, count * course.size, produces.settle(producer) + fetches.settle(consumer)
            ),
            acks=acks,
            rate=rate,
        )
        consumer.close()
    show_measurement(run, row)


class LatencyRun:
    """One run: this thread publishes on schedule, another takes the time at the far end."""

    def __init__(self, count: int, rate: float, size: int, topic: str) -> None:
        self._count = count
        self._rate = rate
        self._topic = topic
        self._begin = 0.0
        self._stop = threading.Event()
        self._failure: Failure | None = None
        self.size = size
        self.latencies_ms: list[float] = []

    def run(self, producer: Producer, consumer: Consumer, timeout_s: float, advance: Advance) -> float:
        arrivals = threading.Thread(target=self._receive, args=(consumer, advance), daemon=True)
        self._begin = time.perf_counter()
        arrivals.start()
        self._send(producer)
        seconds = time.perf_counter() - self._begin
        producer.flush(timeout_s)
        arrivals.join(timeout_s)
        self._stop.set()
        if self._failure is not None:
            raise self._failure
        missing = self._count - len(self.latencies_ms)
        if missing:
            raise Failure(Exit.TIMEOUT, f"{missing} of {self._count} messages did not arrive in time")
        return seconds

    def _send(self, producer: Producer) -> None:
        filler = bytes(self.size - NUMBER_BYTES)
        pause = threading.Event()
        for number in range(self._count):
            late = time.perf_counter() - self._begin - number / self._rate
            if late < 0:
                pause.wait(-late)
            producer.produce(
                self._topic, number.to_bytes(NUMBER_BYTES, "big") + filler, on_delivery=self._answered
            )
            producer.poll(0)

    def _answered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or failure_of(headrace_error(error))

    def _receive(self, consumer: Consumer, advance: Advance) -> None:
        while len(self.latencies_ms) < self._count and not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            value = message.value()
            assert isinstance(value, bytes)
            due = self._begin + int.from_bytes(value[:NUMBER_BYTES], "big") / self._rate
            self.latencies_ms.append((time.perf_counter() - due) * 1000)
            advance(1)
