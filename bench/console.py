"""What the console costs its broker, in CPU time (acceptance 4 and 9 of the console): counts that hold on a busy machine, where seconds do not.

    .venv/bin/python bench/console.py [--topics 9900] [--consoles 10] [--seconds 30] [--rate 500]

Lists: CPU of the broker for one answer of each list a page asks for, with so many topics. Consoles: CPU of the broker for so many open Home pages (the stream,
and what the page asks again and again), beside writers of `--rate` messages a second and without; the difference is theirs. Prints JSON with the load.
One broker holds at most 10,000 replicas (core/limits.py), its own internal ones among them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from headrace.testing.broker_process import BrokerProcess  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
LISTS = {
    "topics, busiest first": "/api/v1/topics?with=rates,sizes,readers&sort=-in&limit=50",
    "topics by name": "/api/v1/topics?with=rates,sizes,readers&limit=50",
    "search of topics": "/api/v1/topics?q=events-77&limit=8&sort=-in",
    "queues": "/api/v1/queues?limit=50",
    "groups, furthest behind first": "/api/v1/groups?with=lag&sort=-lag&limit=50",
    "flow map": "/api/v1/flow",
    "health": "/api/v1/health",
    "cluster": "/api/v1/cluster",
    "happenings": "/api/v1/happenings?limit=8",
}
HOME = (("/api/v1/flow", 2), ("/api/v1/topics?with=rates,sizes&sort=-in&limit=8", 2), ("/api/v1/health", 5), ("/api/v1/cluster", 5), ("/api/v1/session", 5), ("/api/v1/history?series=cluster.in&series=cluster.out&series=cluster.backlog&series=cluster.lag", 5), ("/api/v1/happenings?limit=8", 10))  # fmt: skip
"""What an open Home asks, and every how many seconds."""


def cpu_s(broker: BrokerProcess) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(broker: BrokerProcess) -> float:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Caller:
    def __init__(self, broker: BrokerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=300)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {raw[:200]!r}")
        return json.loads(raw) if raw else None


def fill(broker: BrokerProcess, topics: int) -> None:
    names = [f"region-{n % 40}.service-{n % 90}.events-{n}" for n in range(topics)]
    local = threading.local()

    def make(name: str) -> None:
        if not hasattr(local, "caller"):
            local.caller = Caller(broker)
        local.caller.ask("POST", "/api/v1/topics", {"name": name, "partitions": 1})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, names))
    caller = Caller(broker)
    for n in range(min(2_000, topics)):
        caller.ask("POST", f"/api/v1/groups/team-{n}/seek", {"topic": names[n], "to": "start"})


def lists(broker: BrokerProcess, again: int) -> dict[str, float]:
    """Milliseconds of the broker's CPU for one answer, without what it does anyway meanwhile."""
    caller = Caller(broker)
    began, at = cpu_s(broker), time.monotonic()
    time.sleep(3)
    idle = (cpu_s(broker) - began) / (time.monotonic() - at)
    found = {}
    for name, path in LISTS.items():
        caller.ask("GET", path)
        began, at = cpu_s(broker), time.monotonic()
        for _ in range(again):
            caller.ask("GET", path)
        spent = cpu_s(broker) - began - idle * (time.monotonic() - at)
        found[name] = round(max(0.0, spent) * 1000 / again, 2)
    return found


class Console:
    """One open Home, without its browser."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self.ticks = self.bytes = 0
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._poll)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._broker.http_port, timeout=60)
        connection.request("GET", "/api/v1/events?topics=home")
        answer = connection.getresponse()
        while not self._ended.is_set():
            line = answer.readline()
            self.bytes += len(line)
            self.ticks += line.startswith(b"event: tick")
        connection.close()

    def _poll(self) -> None:
        caller, second = Caller(self._broker), 0
        while not self._ended.wait(1):
            second += 1
            for path, every in HOME:
                if second % every == 0:
                    caller.ask("GET", path)

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10)


def consoles(broker: BrokerProcess, count: int, seconds: float, rate: int) -> dict[str, Any]:
    ended = threading.Event()

    def write() -> None:
        caller = Caller(broker)
        while not ended.wait(0.2):
            caller.ask("POST", "/topics/load/records", {"records": [{"value": "x" * 200}] * (rate // 5)})

    Caller(broker).ask("POST", "/api/v1/topics", {"name": "load", "partitions": 4})
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    rounds = []
    for open_ in (0, count, 0, count, 0):
        pages = [Console(broker) for _ in range(open_)]
        time.sleep(2)
        began, at = cpu_s(broker), time.monotonic()
        time.sleep(seconds)
        spent = (cpu_s(broker) - began) / (time.monotonic() - at)
        rounds.append(
            {"consoles": open_, "share_of_a_core": round(spent, 4), "rss_mb": round(rss_mb(broker), 1)}
        )
        if pages:
            rounds[-1]["bytes_a_tick"] = round(
                sum(page.bytes for page in pages) / max(1, sum(page.ticks for page in pages))
            )
        for page in pages:
            page.close()
    ended.set()
    writer.join()
    base = [one["share_of_a_core"] for one in rounds if not one["consoles"]]
    with_ = [one["share_of_a_core"] for one in rounds if one["consoles"]]
    theirs = sum(with_) / len(with_) - sum(base) / len(base)
    return {
        "rounds": rounds,
        "theirs_of_a_core": round(theirs, 4),
        "each_of_a_core": round(theirs / count, 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=9_900)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--again", type=int, default=20)
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    found: dict[str, Any] = {"commit": commit, "load_at_start": os.getloadavg()}
    with BrokerProcess(start_seconds=600) as broker:
        found["consoles"] = consoles(broker, options.consoles, options.seconds, options.rate)
        fill(broker, options.topics)
        found["topics"] = options.topics
        found["cpu_ms_of_a_list"] = lists(broker, options.again)
        found["rss_mb"] = round(rss_mb(broker), 1)
    found["load_at_end"] = os.getloadavg()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
