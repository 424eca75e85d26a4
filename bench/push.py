"""Push: deliveries/s and the broker's CPU for each; what other clients notice of endpoints that hang; memory meanwhile.

python bench/push.py [--messages 5000] [--webhooks 20] [--seconds 2] [--rounds 5] [--only one,batch,fifo,beside]

The endpoint is a process of its own that answers as soon as it has read a request, and the one that hangs never answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import confluent_kafka as ck
from load import Used, produce

from headrace.testing.broker_process import BrokerProcess

ALLOW = {
    "HEADRACE_WEBHOOK_ALLOW_HTTP": "true",
    "HEADRACE_WEBHOOK_NETWORKS": "127.0.0.0/8",
    "HEADRACE_WEBHOOK_PORTS": "any",
}
PER_S = 200


class Endpoint(asyncio.Protocol):
    """`/hang` never answers, but it confirms; everything else is 204, and GET says how many messages came."""

    messages = 0

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._write: Callable[[bytes], None] = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if b"headrace-confirmation: " in head:
            token = head.partition(b"headrace-confirmation: ")[2].split(b"\r\n", 1)[0]
            self._write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(token), token))
        elif head.startswith(b"get"):
            count = str(Endpoint.messages).encode()
            self._write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(count), count))
        elif not head.startswith(b"post /hang"):
            Endpoint.messages += max(1, body.count(b'"message_id"'))
            self._write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def endpoint() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        method, path, None if body is None else json.dumps(body), {"content-type": "application/json"}
    )
    response = connection.getresponse()
    content = response.read()
    connection.close()
    if response.status >= 400:
        raise RuntimeError(f"{path}: {response.status} {content[:300]!r}")
    return json.loads(content) if content else None


def deliveries(messages: int, **options: Any) -> dict[str, Any]:
    """A backlog of small messages, pushed as quickly as the two of them can."""
    queue_options = {"fifo": options.pop("fifo", False)}
    with BrokerProcess(environment=ALLOW) as broker, endpoint() as port:
        ask(broker.http_port, "POST", "/api/v1/queues", {"name": "q", **queue_options})
        if queue_options["fifo"]:
            producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
            for number in range(messages):
                producer.produce("q", os.urandom(100), key=str(number % 64))
                producer.poll(0)
            producer.flush(60)
        else:
            produce(broker.bootstrap, "q", messages, 100)
        before, began = Used.by(broker.pid), time.perf_counter()
        url = f"http://127.0.0.1:{port}/hook"
        ask(broker.http_port, "POST", "/api/v1/webhooks", {"queue": "q", "url": url, **options})
        while int(ask(port, "GET", "/")) < messages:
            threading.Event().wait(0.05)
        seconds = time.perf_counter() - began
        used = Used.by(broker.pid)
        return {
            "messages": messages,
            "per_s": round(messages / seconds),
            "cpu_us": round((used.cpu_s - before.cpu_s) / messages * 1e6),
            "grown_mb": round((used.rss_bytes - before.rss_bytes) / 1e6),
        }


def latencies(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """Milliseconds from produce to acknowledgement (acks=all), at a steady rate."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    took: list[float] = []
    began = time.perf_counter()
    for number in range(int(seconds * PER_S)):
        due = began + number / PER_S
        while time.perf_counter() < due:
            producer.poll(max(0.0, min(0.001, due - time.perf_counter())))
        sent = time.perf_counter()
        producer.produce(
            topic,
            b"x" * 100,
            on_delivery=lambda e, m, sent=sent: took.append((time.perf_counter() - sent) * 1000),
        )
    producer.flush(30)
    return sorted(took)


def beside(webhooks: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Another client's produce latency, in turns with the webhooks paused and with all of them hanging."""
    without: list[list[float]] = []
    hanging: list[list[float]] = []
    with BrokerProcess(environment=ALLOW) as broker, endpoint() as port:
        names = [f"q{number}" for number in range(webhooks)]
        for name in names:
            ask(broker.http_port, "POST", "/api/v1/queues", {"name": name})
            produce(broker.bootstrap, name, 1_000, 1_000)
            options = {"url": f"http://127.0.0.1:{port}/hang", "timeout_ms": 1_000}
            ask(broker.http_port, "POST", "/api/v1/webhooks", {"queue": name, **options})
            ask(broker.http_port, "POST", f"/api/v1/webhooks/{name}/pause", {})
        latencies(broker.bootstrap, "other", 1)
        before = Used.by(broker.pid).rss_bytes
        for _ in range(rounds):
            without.append(latencies(broker.bootstrap, "other", seconds))
            for name in names:
                ask(broker.http_port, "POST", f"/api/v1/webhooks/{name}/resume", {})
            hanging.append(latencies(broker.bootstrap, "other", seconds))
            for name in names:
                ask(broker.http_port, "POST", f"/api/v1/webhooks/{name}/pause", {})
        grown = Used.by(broker.pid).rss_bytes - before
        tried = sum(item["failed"] for item in ask(broker.http_port, "GET", "/api/v1/webhooks")["items"])
    found = {}
    for what, each in (("without", without), ("beside them", hanging)):
        # The median of the rounds: one stall of a shared machine is in one round.
        found[what] = {
            "p50_ms": round(statistics.median(took[len(took) // 2] for took in each), 2),
            "p99_ms": round(statistics.median(took[int(len(took) * 0.99)] for took in each), 2),
            "max_ms": round(max(took[-1] for took in each), 2),
        }
    ratio = found["beside them"]["p99_ms"] / found["without"]["p99_ms"]
    return {
        **found,
        "p99_ratio": round(ratio, 2),
        "requests_that_hung": tried,
        "grown_mb": round(grown / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--webhooks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="one,batch,fifo,beside")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
        return
    count = given.messages
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "one": lambda: {"one a request": deliveries(count)},
        "batch": lambda: {"fifty a request": deliveries(count * 4, batch_size=50)},
        "fifo": lambda: {"FIFO, 64 groups": deliveries(count, fifo=True)},
        "beside": lambda: {
            f"{given.webhooks} endpoints that hang": beside(given.webhooks, given.seconds, given.rounds)
        },
    }
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
    for name in given.only.split(","):
        found |= parts[name]()
    print(json.dumps(found, indent=None if given.json else 2))


if __name__ == "__main__":
    main()
