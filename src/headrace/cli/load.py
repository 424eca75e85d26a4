"""Command: a producer at full speed, for `bench produce` and to fill a topic for `bench consume`."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer

from headrace.cli.failure import Failure, failure_of
from headrace.cli.progress import Advance
from headrace.client.errors import headrace_error

CHUNK = 1000
SAMPLE_EVERY = 100
"""A callback per message would measure Python; one in a hundred is enough for percentiles."""

PAYLOADS = 64


class LoadPlan(NamedTuple):
    topic: str
    messages: int
    size: int
    rate: float | None = None


class LoadResult(NamedTuple):
    seconds: float
    latencies_ms: list[float]


def produce_load(producer: Producer, load: LoadPlan, advance: Advance) -> LoadResult:
    """Until all is acknowledged. Fails with the first error, of which librdkafka tells for every message."""
    failures: list[Failure] = []
    latencies_ms: list[float] = []

    def timed(started: float) -> Any:
        def answered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                latencies_ms.append((time.perf_counter() - started) * 1000)
            else:
                failures.append(failure_of(headrace_error(error), f'topic "{load.topic}"'))

        return answered

    # Random, so that compression does not win a contest against zeros; several, so that it finds no repetition.
    payloads = [os.urandom(load.size) for _ in range(PAYLOADS)]
    produce, topic = producer.produce, load.topic
    begin = time.perf_counter()
    sent = 0
    while sent < load.messages and not failures:
        if load.rate is not None:
            while (left := begin + sent / load.rate - time.perf_counter()) > 0:
                producer.poll(left)
        chunk = min(CHUNK if load.rate is None else 1, load.messages - sent)
        done = 0
        while done < chunk:
            try:
                if (sent + done) % SAMPLE_EVERY:
                    produce(topic, payloads[done % PAYLOADS])
                else:
                    produce(topic, payloads[done % PAYLOADS], on_delivery=timed(time.perf_counter()))
                done += 1
            except BufferError:
                producer.poll(0.01)
        sent += chunk
        producer.poll(0)
        advance(chunk)
    producer.flush()
    if failures:
        raise failures[0]
    return LoadResult(time.perf_counter() - begin, latencies_ms)
