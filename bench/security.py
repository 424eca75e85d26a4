"""What security costs (section 13 of its rules): TLS per GB each way, rights on produce and fetch, and the start of an open broker.

    .venv/bin/python bench/security.py [--mb 100] [--requests 20000] [--rounds 5] [--only tls|rights|start] [--json]

Everything is compared in turns within one run, by the CPU time of the broker (all threads, in nanoseconds), medians: a busy machine moves
both sides alike. Goals: TLS at most 0.8 CPU-s per GB each way, rights at most 2 %, the start of an open broker as before.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from load import Pipeline, fetch_frame, produce_frame
from record_walk import cpu_s

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from raw_client import RawClient
from raw_login import log_in

from headrace.cli.user_view import scram_records
from headrace.security.certificates import Pair, issue, make_authority
from headrace.testing.broker_process import BrokerProcess

WORD = "a word"
BATCH = 100_000


class Line(Pipeline):
    """A pipeline over TLS, or of somebody who has logged in."""

    def __init__(self, port: int, frame: bytes, *, ca: str = "", user: str = "") -> None:
        client = RawClient(port)
        if ca:
            context = ssl.create_default_context(cafile=ca)
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        if user:
            log_in(client, user, WORD)
        self._socket: socket.socket = client.socket
        self._frame = frame
        self._socket.sendall(frame)
        self.answer = self._read_one()


def spent(pid: int, line: Pipeline, count: int, in_flight: int) -> float:
    before = cpu_s(pid)
    line.run(count, in_flight)
    return cpu_s(pid) - before


def tls(megabytes: int, rounds: int) -> dict[str, float]:
    """CPU-s per GB of the broker, plain and with TLS at the same port: what comes in (produce) and what goes out (fetch)."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        authority, pair = (
            Pair(Path(scratch) / f"{n}.pem", Path(scratch) / f"{n}.key") for n in ("ca", "broker")
        )
        make_authority(authority, "bench authority")
        issue(authority, pair, "bench", ["localhost", "127.0.0.1"])
        ca = str(authority.certificate)
        files = ("--tls-cert", str(pair.certificate), "--tls-key", str(pair.key))
        with BrokerProcess(arguments=files) as broker:
            with RawClient(broker.kafka_port) as client:
                client.create_topic("t")
            frame = produce_frame("t", 1, BATCH)
            count = max(4, megabytes * 1_000_000 // len(frame))
            found: dict[str, list[float]] = {}
            for _ in range(rounds):
                for name, where in (("plain", ""), ("tls", ca)):
                    line = Line(broker.kafka_port, frame, ca=where)
                    per_gb = spent(broker.pid, line, count, 8) / (count * len(frame) / 1e9)
                    found.setdefault(f"in, {name}", []).append(per_gb)
                    line.close()
                    line = Line(broker.kafka_port, fetch_frame("t", 0, 1_000_000), ca=where)
                    reads = max(4, megabytes * 1_000_000 // len(line.answer))
                    per_gb = spent(broker.pid, line, reads, 4) / (reads * len(line.answer) / 1e9)
                    found.setdefault(f"out, {name}", []).append(per_gb)
                    line.close()
    rows = {name: statistics.median(values) for name, values in found.items()}
    for way in ("in", "out"):
        rows[f"{way}, more with TLS"] = rows[f"{way}, tls"] - rows[f"{way}, plain"]
    return rows


def rights(requests: int, rounds: int) -> dict[str, float]:
    """Microseconds of CPU a request: small produces and fetches in mode open and in mode enforced, on the same broker, as the same user."""
    with BrokerProcess() as broker:

        def ask(method: str, path: str, body: Any, login: str = "") -> None:
            request = urllib.request.Request(
                broker.url + path,
                json.dumps(body).encode(),
                {"content-type": "application/json"},
                method=method,
            )
            if login:
                import base64

                request.add_header(
                    "authorization", "Basic " + base64.b64encode(f"{login}:{WORD}".encode()).decode()
                )
            urllib.request.urlopen(request, timeout=60).close()

        with RawClient(broker.kafka_port) as client:
            client.create_topic("t")
        for name, is_super in (("root", True), ("alice", False)):
            ask(
                "POST",
                "/api/v1/security/users",
                {"name": name, "scram": scram_records(WORD, 4096), "super": is_super},
            )
        _allow(broker)
        found: dict[str, list[float]] = {}
        for _ in range(rounds):
            for mode in ("open", "enforced"):
                ask("PUT", "/api/v1/security/mode", {"mode": mode, "force": True}, "root")
                for name, frame in (
                    ("produce", produce_frame("t", 1)),
                    ("fetch", fetch_frame("t", 0, 1_000)),
                ):
                    line = Line(broker.kafka_port, frame, user="alice")
                    each = spent(broker.pid, line, requests, 100) / requests * 1e6
                    found.setdefault(f"{name}, {mode}", []).append(each)
                    line.close()
    rows = {name: statistics.median(values) for name, values in found.items()}
    for name in ("produce", "fetch"):
        rows[f"{name}, more with rights (%)"] = (rows[f"{name}, enforced"] / rows[f"{name}, open"] - 1) * 100
    return rows


def _allow(broker: BrokerProcess) -> None:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    acls = [
        AclBinding(
            ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]  # fmt: skip
    for future in admin.create_acls(acls).values():
        future.result(60)


def start(rounds: int) -> dict[str, float]:
    """CPU milliseconds until a broker is ready: open, and secured for the second time; and of `import headrace`."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        for _ in range(rounds):
            for name, arguments in (("open", ()), ("secured", ("--secure",))):
                with BrokerProcess(Path(scratch) / name, arguments=arguments) as broker:
                    found.setdefault(f"{name} broker", []).append(cpu_s(broker.pid) * 1000)
            code = "import time; a = time.process_time(); import headrace; print((time.process_time() - a) * 1000)"
            said = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
            found.setdefault("import headrace", []).append(float(said))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("tls", "rights", "start"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    parts = {
        "tls": lambda: tls(given.mb, given.rounds),
        "rights": lambda: rights(given.requests, given.rounds),
        "start": lambda: start(given.rounds),
    }
    rows = {name: work() for name, work in parts.items() if given.only in (None, name)}
    if given.json:
        print(json.dumps(rows, indent=2))
        return
    for part, figures in rows.items():
        for name, value in figures.items():
            print(f"{part:8} {name:34} {value:10.3f}")


if __name__ == "__main__":
    main()
