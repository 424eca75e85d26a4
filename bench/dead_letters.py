"""A queue of a million dead letters (acceptance 5 of the console): by counts and CPU, which hold on a busy machine; seconds are beside them.

    .venv/bin/python bench/dead_letters.py [--letters 1000000] [--kill]

Letters are written over Kafka with the headers that a broker gives them, of four kinds and two sources. Then: the histogram of what went wrong, the first page,
a dry run with a filter over all of them, and a redrive of one source's; with --kill the broker is killed with SIGKILL half-way and started again. In the end
each letter must be in exactly one queue: that is counted over Kafka, record by record. Prints JSON with the load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from confluent_kafka import Consumer, Producer, TopicPartition
from console import Caller, cpu_s, rss_mb

from headrace.testing.broker_process import BrokerProcess

ERRORS = (
    "image 17 is not readable",
    "connection to s3 timed out after 3000 ms",
    "no such customer: 4711",
    "status 503",
)
SOURCES = ("thumbnails", "invoices")
FILTER = 'headers["headrace-dead-source"] = "thumbnails"'


def prepare(broker: BrokerProcess, letters: int) -> None:
    caller = Caller(broker)
    caller.ask("POST", "/api/v1/queues", {"name": "dead"})
    for name in SOURCES:
        caller.ask("POST", "/api/v1/queues", {"name": name, "dead_letter": "dead", "max_deliveries": 3})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    for number in range(letters):
        headers = {
            "headrace-dead-reason": "rejected",
            "headrace-dead-source": SOURCES[number % 2],
            "headrace-dead-detail": ERRORS[number % 4],
            "headrace-dead-deliveries": "3",
        }
        producer.produce("dead", json.dumps({"letter": number, "currency": "EUR"}), headers=headers)
        if number % 20_000 == 0:
            producer.poll(0.2)
    producer.flush(600)


def measured(broker: BrokerProcess, what: str, ask: Any) -> tuple[dict[str, Any], Any]:
    began, cpu = time.monotonic(), cpu_s(broker)
    found = ask()
    return {
        "what": what,
        "cpu_ms": round((cpu_s(broker) - cpu) * 1000),
        "seconds": round(time.monotonic() - began, 2),
    }, found


def letters_in(broker: BrokerProcess, topic: str, first: dict[int, int] | None = None) -> Counter[int]:
    """Committed records of a topic, by the number each letter has."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "count",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    places = [
        TopicPartition(topic, number, (first or {}).get(number, 0))
        for number in consumer.list_topics(topic).topics[topic].partitions
    ]
    consumer.assign(places)
    found: Counter[int] = Counter()
    ended: set[int] = set()
    while len(ended) < len(places):
        for message in consumer.consume(5_000, 5):
            if message.error():
                ended.add(message.partition())
            else:
                found[json.loads(message.value())["letter"]] += 1
    consumer.close()
    return found


def moved(caller: Caller, task: str) -> Any:
    return next(one for one in caller.ask("GET", "/api/v1/queues/dead/moves")["items"] if one["id"] == task)


def redrive(broker: BrokerProcess, kill: bool, letters: int) -> dict[str, Any]:
    caller = Caller(broker)
    began, cpu = time.monotonic(), cpu_s(broker)
    task = caller.ask("POST", "/api/v1/queues/dead/moves", {"act": "redrive", "filter": FILTER})["id"]
    killed_at = None
    while (now := moved(caller, task))["status"] in ("running", "cancelling"):
        if kill and killed_at is None and now["moved"] * 4 > letters:
            killed_at = now["moved"]
            broker.kill()
            broker.start()
            caller, cpu = Caller(broker), 0.0
        time.sleep(0.5)
    seconds = time.monotonic() - began
    used = cpu_s(broker) - cpu
    count = now["moved"] - (killed_at or 0)
    return {
        "status": now["status"],
        "failure": now.get("failure", ""), "moved": now["moved"], "killed_at": killed_at, "seconds": round(seconds, 1),
        "per_s": round(now["moved"] / seconds), "cpu_ms_a_thousand": round(used * 1e6 / count if count > 0 else 0, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    with BrokerProcess() as broker:
        prepare(broker, options.letters)
        caller = Caller(broker)
        while caller.ask("GET", "/api/v1/queues/dead")["ready"] < options.letters:
            time.sleep(0.5)
        rows = []
        row, found = measured(broker, "histogram", lambda: caller.ask("GET", "/api/v1/dead-letters"))
        (dead,) = found["items"]
        rows.append(
            {**row, "letters": dead["messages"], "looked_at": dead["looked_at"], "kinds": len(dead["kinds"])}
        )
        row, found = measured(
            broker, "first page of letters", lambda: caller.ask("GET", "/api/v1/queues/dead/letters?limit=50")
        )
        rows.append({**row, "letters": len(found["items"])})
        row, found = measured(
            broker,
            "dry run with a filter",
            lambda: caller.ask(
                "POST", "/api/v1/queues/dead/moves", {"act": "redrive", "filter": FILTER, "dry_run": True}
            ),
        )
        rows.append({**row, "to_move": found["to_move"]})
        done = redrive(broker, options.kill, options.letters)
        back = letters_in(broker, "thumbnails")
        queue = Caller(broker).ask("GET", "/api/v1/queues/dead")
        left = queue["ready"] + queue["in_flight"] + queue["delayed"]
        once = {
            "sent_back": len(back),
            "twice": sum(times > 1 for times in back.values()),
            "left_dead": left,
            "lost": options.letters - len(back) - left,
        }
        print(
            json.dumps(
                {
                    "commit": commit,
                    "load": os.getloadavg(),
                    "letters": options.letters,
                    "rss_mb": round(rss_mb(broker)),
                    "looks": rows,
                    "redrive": done,
                    "in_the_end": once,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
