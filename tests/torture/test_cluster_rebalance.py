"""F48: a fourth broker joins three real ones, and `headrace cluster rebalance` gives it its share of replicas and leaders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parent))
from books import PRODUCER, quiet
from real_cluster import RealCluster, wait_for

NODES = (1, 2, 3, 4)
COMMAND = ("cluster", "rebalance")


def test_f48_a_new_broker_gets_its_share_of_replicas_and_leaders(tmp_path: Path) -> None:
    """Racks are all the same here, so that nothing but evenness decides; one topic of twelve, eight of one partition."""
    cluster = RealCluster(tmp_path, coordinator="sqlite", size=4, settings={"HEADRACE_RACK": ""})
    new = cluster.brokers[4]
    try:
        for number in (1, 2, 3):
            cluster.brokers[number].start()
        old = ",".join(cluster.brokers[number].bootstrap for number in (1, 2, 3))
        admin = AdminClient({"bootstrap.servers": old, "log_level": 0, "error_cb": quiet})
        topics = [NewTopic("wide", 12, 3), *(NewTopic(f"narrow-{number}", 1, 3) for number in range(8))]
        for made in admin.create_topics(topics).values():
            made.result(60)
        producer = ck.Producer({**PRODUCER, "bootstrap.servers": old, "error_cb": quiet})
        for number in range(120):
            producer.produce("wide", f"{number}", partition=number % 12)
        assert producer.flush(60) == 0
        new.start()
        wait_for("four brokers", lambda: len(admin.list_topics(timeout=10).brokers) == 4)
        plan = rebalance(old, tmp_path, "--dry-run")
        assert any(4 in move["replicas"] for move in plan)
        assert plan == rebalance(old, tmp_path), "what was announced was done"
        wait_for("leaders", lambda: spread_of(admin)[1] <= 1)
        held, led, per_topic = spread_of(admin)
        assert held <= 1
        assert led <= 1
        assert per_topic <= 1, "of the topic with twelve partitions, too"
        assert rebalance(old, tmp_path) == [], "and then there is nothing to do"
        assert read_all(cluster, "wide") == sorted(str(number) for number in range(120))
    finally:
        cluster.stop()


def rebalance(bootstrap: str, home: Path, *options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *COMMAND, "--bootstrap", bootstrap, "--json", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)},
    )
    assert done.returncode == 0, done.stderr
    items: list[dict[str, object]] = json.loads(done.stdout)["items"]
    return items


def spread_of(admin: AdminClient) -> tuple[int, int, int]:
    """The most less the fewest: of replicas, of leaderships, and of leaderships of the wide topic."""
    topics = admin.list_topics(timeout=10).topics
    rows = [(name, row) for name, topic in topics.items() for row in topic.partitions.values()]
    held = Counter(broker for _, row in rows for broker in row.replicas)
    led = Counter(row.leader for _, row in rows)
    wide = Counter(row.leader for name, row in rows if name == "wide")

    def span(counts: Counter[int]) -> int:
        return max(counts[node] for node in NODES) - min(counts[node] for node in NODES)

    return span(held), span(led), span(wide)


def read_all(cluster: RealCluster, topic: str) -> list[str]:
    consumer = ck.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0, "error_cb": quiet}
    )
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(12)])
    found: list[str] = []
    wait_for("all records", lambda: _take(consumer, found) >= 120, 240)
    consumer.close()
    return sorted(found)


def _take(consumer: ck.Consumer, found: list[str]) -> int:
    found += [record.value().decode() for record in consumer.consume(500, 0.5) if record.error() is None]
    return len(found)
