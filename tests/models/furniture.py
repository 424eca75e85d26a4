"""A data directory with something of everything in it, made through the doors, and the look that finds it again.

    python tests/models/furniture.py tests/upgrade/0.1.0.tar.xz      # with the version that is to be remembered

Nothing in it grows old: retention is off, and nothing is due before the year 2100.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FAR_MS = 4_102_444_800_000
"""2100-01-01."""
FOREVER = {"retention.ms": "-1"}


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"{url}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json", "X-Headrace-Client": "furniture"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def send(url: str, queue: str, text: str, query: str = "") -> None:
    address = f"{url}/queues/{queue}/messages{query}"
    request = urllib.request.Request(address, text.encode(), {"Content-Type": "text/plain"}, method="POST")
    with urllib.request.urlopen(request, timeout=120):
        pass


def furnish(bootstrap: str, url: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"codec-{codec}", 1, 1, config=FOREVER) for codec in CODECS]
    topics += [
        NewTopic("orders", 3, 1, config=FOREVER),
        NewTopic("paid", 1, 1, config=FOREVER),
        NewTopic("prices", 1, 1, config={"cleanup.policy": "compact"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(120)
    for codec in CODECS:
        sender = ck.Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
        for number in range(50):
            sender.produce(
                f"codec-{codec}", b"value %d " % number * 20, b"key %d" % number, headers={"n": str(number)}
            )
        assert sender.flush(120) == 0
    producer = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(30):
        producer.produce(
            "orders", json.dumps({"id": number, "total": number * 10}), str(number), partition=number % 3
        )
        producer.produce("prices", b"%d" % number, b"p%d" % (number % 5))
    assert producer.flush(120) == 0
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False}
    )
    consumer.commit(
        offsets=[ck.TopicPartition("orders", number, number + 4) for number in range(3)], asynchronous=False
    )
    consumer.close()
    writer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    writer.init_transactions(120)
    for word, commit in (("kept", True), ("thrown away", False), ("kept too", True)):
        writer.begin_transaction()
        writer.produce("paid", word)
        writer.flush(120)
        (writer.commit_transaction if commit else writer.abort_transaction)(120)
    view = NewTopic(
        "large", config={"headrace.view.source": "orders", "headrace.view.where": "value.total > 200"}
    )
    for future in admin.create_topics([view]).values():
        future.result(120)
    _queues(url)


def _queues(url: str) -> None:
    ask(url, "POST", "/api/v1/queues", {"name": "jobs-dead"})
    ask(url, "POST", "/api/v1/queues", {"name": "jobs", "dead_letter": "jobs-dead", "max_deliveries": 1})
    ask(url, "POST", "/api/v1/queues", {"name": "line.fifo", "fifo": True})
    for queue in ("jobs-dead", "jobs", "line.fifo"):
        ask(url, "PATCH", f"/api/v1/topics/{queue}", {"configs": FOREVER})
    for number in range(6):
        send(url, "jobs", f"job {number}")
    done, dying = ask(url, "GET", "/queues/jobs/messages?max=2&visibility=12h")["items"]
    ask(url, "DELETE", f"/queues/jobs/messages/{done['receipt']}")
    ask(url, "POST", f"/queues/jobs/messages/{dying['receipt']}/reject")
    send(url, "jobs", "not before 2100", f"?deliver_at={FAR_MS}")
    for number in range(3):
        send(url, "line.fifo", f"in line {number}", "?group=g")
    ask(
        url,
        "POST",
        "/api/v1/schedules",
        {"name": "nightly", "cron": "0 3 1 1 *", "topic": "jobs", "value": "happy new year"},
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        data = Path(home) / "data"
        with BrokerProcess(data) as broker:
            furnish(broker.bootstrap, broker.url)
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            archive.add(data, "data")
