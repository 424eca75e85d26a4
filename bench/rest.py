"""REST: publishes and reads per second, and what each costs the broker in CPU.

python bench/rest.py [--requests 3000] [--connections 16] [--json]

The clients are plain sockets that send prepared requests, one at a time each, from a process of their own: a real HTTP
client costs more than the broker. Every publish is durable before it is answered, so a connection alone waits for the disk;
with several the syncs are shared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import threading
import time
from typing import Any

from load import Used

from headrace.testing.broker_process import BrokerProcess

VALUE = b"x" * 200


def request(method: str, path: str, body: bytes = b"", kind: str = "text/plain", **more: str) -> bytes:
    headers = {"host": "127.0.0.1", "content-type": kind, "content-length": str(len(body)), **more}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def ask(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            self._rest += self._socket.recv(65536)
        head = self._rest[:end].lower()
        if not head.startswith((b"http/1.1 20",)):
            raise RuntimeError(self._rest[:500].decode(errors="replace"))
        size = int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length: " in head else 0
        while len(self._rest) < end + 4 + size:
            self._rest += self._socket.recv(1 << 20)
        body, self._rest = self._rest[end + 4 : end + 4 + size], self._rest[end + 4 + size :]
        return body


def clients(port: int, connections: int, each: int, data: bytes, keyed: bool) -> None:
    def run(place: int) -> None:
        connection = Connection(port)
        for number in range(each):
            key = f"{os.getpid()}-{place}-{number}"
            connection.ask(
                request("POST", "/topics/keyed/records", VALUE, idempotency_key=key) if keyed else data
            )

    threads = [threading.Thread(target=run, args=(place,)) for place in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure(
    broker: BrokerProcess,
    connections: int,
    requests: int,
    data: bytes,
    records: int = 1,
    *,
    keyed: bool = False,
) -> dict[str, Any]:
    each = max(1, requests // connections)
    before, began = Used.by(broker.pid).cpu_s, time.perf_counter()
    process = multiprocessing.get_context("fork").Process(
        target=clients, args=(broker.http_port, connections, each, data, keyed)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("a client failed")
    seconds, count = time.perf_counter() - began, each * connections
    cpu_s = Used.by(broker.pid).cpu_s - before
    return {
        "requests_per_s": round(count / seconds),
        "records_per_s": round(count * records / seconds),
        "cpu_us_per_request": round(cpu_s / count * 1e6),
        "cpu_us_per_record": round(cpu_s / count / records * 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    batch = json.dumps({"records": [{"value": VALUE.decode()}] * 100}).encode()
    publish = request("POST", "/topics/t/records", VALUE)
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    with BrokerProcess() as broker:
        measure(broker, 4, 200, publish)
        many, n = options.connections, options.requests
        found["publish, 1 connection"] = measure(broker, 1, n // 4, publish)
        found[f"publish, {many} connections"] = measure(broker, many, n, publish)
        found["publish JSON"] = measure(
            broker, many, n, request("POST", "/topics/t/records", b'{"value":"hello"}', "application/json")
        )
        found["publish 100 at a time"] = measure(
            broker, many, n // 10, request("POST", "/topics/t/records", batch, "application/json"), 100
        )
        found["publish with an Idempotency-Key"] = measure(broker, many, n, b"", keyed=True)
        found["send to a queue"] = measure(broker, many, n, request("POST", "/queues/q/messages", VALUE))
        found["browse 100 records"] = measure(
            broker, many, n // 4, request("GET", "/topics/t/records?limit=100"), 100
        )
        found["look at a topic"] = measure(broker, many, n // 4, request("GET", "/api/v1/topics/t"))
    if options.json:
        print(json.dumps(found))
        return
    print(f"load average before: {found.pop('load'):.1f} on {os.cpu_count()} cores")
    for name, row in found.items():
        print(
            f"{name:34} {row['requests_per_s']:7,} requests/s {row['records_per_s']:9,} records/s "
            f"{row['cpu_us_per_request']:6,} µs CPU each {row['cpu_us_per_record']:8,} per record"
        )


if __name__ == "__main__":
    main()
