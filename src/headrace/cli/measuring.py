"""Command: what a benchmark reports: rates, latency percentiles, and what the broker's process used meanwhile.

The broker's CPU time comes from /proc when it runs on this machine; it is divided by gigabytes and by requests, which
makes numbers that can be compared between a busy machine and an idle one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from headrace.cli.addresses import split_address
from headrace.cli.broker_link import BrokerLink
from headrace.cli.completing import complete_topics
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row, counted, grouped
from headrace.cli.parameters import MOST_PARTITIONS, Number
from headrace.cli.processes import Usage, listener, usage
from headrace.core.units import format_size

DEFAULT_TOPIC = "headrace-bench"
STATISTICS_MS = 200


class Percentiles(msgspec.Struct):
    samples: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class BrokerCost(msgspec.Struct):
    pid: int
    cpu_seconds: float
    cpu_seconds_per_gb: float
    cpu_us_per_message: float
    requests: int
    """That this client sent, of every kind."""
    cpu_us_per_request: float
    memory_bytes: int


class Measurement(Row):
    NAME = "topic"
    topic: str
    messages: int
    bytes: int
    seconds: float
    messages_per_second: float
    megabytes_per_second: float
    latency: Percentiles | None
    broker: BrokerCost | None
    """None when its process can't be seen from here."""


def percentiles(samples_ms: Sequence[float]) -> Percentiles | None:
    if not samples_ms:
        return None
    ordered = sorted(samples_ms)

    def at(fraction: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(fraction * len(ordered)))], 3)

    return Percentiles(len(ordered), at(0.5), at(0.9), at(0.99), at(0.999), round(ordered[-1], 3))


class RequestCount:
    """How many requests a librdkafka client has sent, from the statistics it reports."""

    def __init__(self) -> None:
        self.requests = 0
        self.reports = 0

    def settings(self) -> dict[str, Any]:
        return {"statistics.interval.ms": STATISTICS_MS, "stats_cb": self._heard}

    def _heard(self, text: str) -> None:
        self.reports += 1
        self.requests = sum(broker["tx"] for broker in json.loads(text)["brokers"].values())

    def settle(self, client: Any) -> int:
        """After the work: wait for the report that covers all of it."""
        wanted, deadline = self.reports + 2, time.monotonic() + 2
        while self.reports < wanted and time.monotonic() < deadline:
            client.poll(STATISTICS_MS / 1000)
        return self.requests


class BrokerMeter:
    """What the broker used between `begin` and `end`."""

    def __init__(self, link: BrokerLink, pid: int | None) -> None:
        self.pid = pid if pid is not None else _local_broker(link)
        self._before: Usage | None = None
        self._after: Usage | None = None

    def begin(self) -> None:
        self._before = usage(self.pid) if self.pid is not None else None

    def end(self) -> None:
        self._after = usage(self.pid) if self.pid is not None else None

    def cost(self, messages: int, size: int, requests: int) -> BrokerCost | None:
        after = self._after
        if self.pid is None or self._before is None or after is None:
            return None
        cpu = after.cpu_seconds - self._before.cpu_seconds
        return BrokerCost(
            self.pid,
            round(cpu, 3),
            round(cpu / (size / 1e9), 3) if size else 0.0,
            round(cpu / messages * 1e6, 3) if messages else 0.0,
            requests,
            round(cpu / requests * 1e6, 1) if requests else 0.0,
            after.memory_bytes,
        )


def _local_broker(link: BrokerLink) -> int | None:
    host, port = split_address(link.profile.bootstrap.split(",")[0].strip())
    local = host in ("localhost", "::1") or host.startswith("127.")
    return listener(port) if local else None


@contextmanager
def bench_topic(link: BrokerLink, name: str, partitions: int, keep: bool) -> Iterator[None]:
    """Made for this run and deleted after it, unless it was there before or is to be kept."""
    existed = name in link.topics()
    if not existed:
        wanted = [NewTopic(name, num_partitions=partitions)]
        link.answer(link.admin.create_topics(wanted, request_timeout=link.timeout_s)[name], f'topic "{name}"')
    try:
        yield
    finally:
        if not existed and not keep:
            link.outcome(link.admin.delete_topics([name], request_timeout=link.timeout_s)[name])


def show_measurement(run: Invocation, row: Measurement) -> None:
    run.output.one(row, lambda: measurement_text(row))


def measurement_text(row: Measurement) -> str:
    lines = [
        f"{grouped(row.messages)} messages, {format_size(row.bytes)} in {row.seconds:.2f}s",
        f"  throughput   {grouped(round(row.messages_per_second))} messages/s   {row.megabytes_per_second:.1f} MB/s",
    ]
    if row.latency is not None:
        found = row.latency
        lines.append(
            f"  latency      p50 {found.p50_ms:.2f} ms   p90 {found.p90_ms:.2f}   p99 {found.p99_ms:.2f}\n"
            f"               p99.9 {found.p999_ms:.2f}   max {found.max_ms:.2f}   ({counted(found.samples, 'sample')})"
        )
    if row.broker is None:
        lines.append("  broker       not on this machine; --pid tells which process to watch")
    else:
        cost = row.broker
        lines.append(
            f"  broker CPU   {cost.cpu_seconds:.2f}s   {cost.cpu_seconds_per_gb:.2f} s/GB   {cost.cpu_us_per_message:.2f} µs/message\n"
            f"               {cost.cpu_us_per_request:.0f} µs/request ({counted(cost.requests, 'request')})"
        )
        lines.append(f"  broker RSS   {format_size(cost.memory_bytes)}   (process {cost.pid})")
    return "\n".join(lines)


def common_options(function: Any) -> Any:
    """Flags that every benchmark has."""
    for option in (
        click.option("--pid", type=Number(1), help="The broker's process, if it can't be found."),
        click.option("--keep", is_flag=True, help="Keep the topic that was made for this."),
        click.option("-p", "--partitions", type=Number(1, MOST_PARTITIONS), default=1, show_default=True),
        click.option(
            "-t", "--topic", default=DEFAULT_TOPIC, show_default=True, shell_complete=complete_topics
        ),
    ):
        function = option(function)
    return function
