"""Command: `headrace bench queue`."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_queues
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import HttpLink, part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.measuring import BrokerMeter, Measurement, percentiles, show_measurement
from headrace.cli.output import Shape
from headrace.cli.parameters import Count, Number, Size
from headrace.cli.progress import progress

BATCH = 10
WAIT = "1s"


class QueueMeasurement(Measurement):
    SCHEMA: ClassVar[str] = "headrace.bench.queue/v1"
    workers: int
    redelivered: int
    """Messages that were handed out more than once."""


@leaf(QueueMeasurement, Shape.ONE, http=True)
@click.option(
    "--queue", "name", default="headrace-bench-queue", show_default=True, shell_complete=complete_queues
)
@click.option("-n", "--messages", type=Count(), default="5000", show_default=True)
@click.option("-s", "--size", type=Size(), default="100", show_default=True, help="Of each message.")
@click.option(
    "-w",
    "--workers",
    type=Number(1, 64),
    default=4,
    show_default=True,
    help="Senders, and receivers.",
)
@click.option("--keep", is_flag=True, help="Keep the queue that was made for this.")
@click.option("--pid", type=Number(1), help="The broker's process, if it can't be found.")
def command(
    run: Invocation, name: str, messages: int, size: int, workers: int, keep: bool, pid: int | None
) -> None:
    """Send, receive and acknowledge as fast as it goes.

    Latency is from a message's send until it is received. What is measured is the HTTP door, ten messages a request, with this
    client's own cost on top; compare the broker's CPU.
    """
    http = run.http
    existed = any(item["name"] == name for item in http.all_items("/api/v1/queues"))
    if not existed:
        http.ask("POST", "/api/v1/queues", {"name": name})
    meter = BrokerMeter(run.link, pid)
    course = QueueRun(run, name, messages, size, workers)
    try:
        meter.begin()
        with progress(run, "Measuring", messages) as advance:
            seconds = course.run(advance)
        meter.end()
    finally:
        if not existed and not keep:
            http.ask("DELETE", f"/api/v1/queues/{part(name)}")
    total = messages * size
    row = QueueMeasurement(
        topic=name,
        messages=messages,
        bytes=total,
        seconds=round(seconds, 3),
        messages_per_second=round(messages / seconds, 1),
        megabytes_per_second=round(total / seconds / 1e6, 3),
        latency=percentiles(course.latencies_ms),
        broker=meter.cost(messages, total, course.requests),
        workers=workers,
        redelivered=course.redelivered,
    )
    show_measurement(run, row)


class QueueRun:
    """One run: threads that send, threads that receive and acknowledge, until every message is done."""

    def __init__(self, run: Invocation, name: str, messages: int, size: int, workers: int) -> None:
        self._profile = run.profile
        self._queue = f"/queues/{part(name)}"
        self._messages = messages
        self._filler = "x" * max(0, size - 16)
        self._workers = workers
        self._lock = threading.Lock()
        self._left = messages
        self._done = 0
        self._failure: Failure | None = None
        self.latencies_ms: list[float] = []
        self.requests = self.redelivered = 0

    def run(self, advance: Any) -> float:
        begun = time.perf_counter()
        threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._send, lambda: self._receive(advance))
            for _ in range(self._workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return time.perf_counter() - begun

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Failure as failure:
            self._failure = self._failure or failure

    def _send(self) -> None:
        link = HttpLink(self._profile)
        while self._failure is None:
            with self._lock:
                count = min(BATCH, self._left)
                self._left -= count
            if not count:
                return
            now = f"{time.perf_counter():016.6f}"
            link.ask("POST", f"{self._queue}/batch", {"records": [{"value": now + self._filler}] * count})
            with self._lock:
                self.requests += 1

    def _receive(self, advance: Any) -> None:
        link = HttpLink(self._profile)
        quiet = 0
        while self._failure is None and self._done < self._messages:
            query = {"max": str(BATCH), "wait": WAIT}
            found = link.ask("POST", f"{self._queue}/receive", query=query, wait_ms=2_000)["items"]
            quiet = 0 if found else quiet + 1
            if quiet > 60:
                raise Failure(Exit.TIMEOUT, f"{self._messages - self._done} messages did not arrive")
            now = time.perf_counter()
            for message in found:
                link.ask("DELETE", f"{self._queue}/messages/{part(message['receipt'])}")
            with self._lock:
                self.requests += 1 + len(found)
                for message in found:
                    if message["delivery"] > 1:
                        self.redelivered += 1
                        continue
                    self._done += 1
                    self.latencies_ms.append((now - float(message["value"][:16])) * 1000)
            advance(len(found))
