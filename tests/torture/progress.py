"""No client may be stuck: after the last fault each of them gets on, or we say which one doesn't and what it was doing."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Protocol

import confluent_kafka as ck
from books import quiet
from confluent_kafka.admin import AdminClient
from real_cluster import RealCluster


class Client(Protocol):
    def start(self) -> object: ...

    def progress(self) -> dict[str, int]:
        """Per part of the client, how often it has got on; a part that stands still is stuck."""
        ...


def stuck_after(clients: Sequence[Client], seconds: float) -> list[str]:
    """Who has not got on within that time; returns as soon as all have."""
    before = _all(clients)
    deadline = time.monotonic() + seconds
    while True:
        now = _all(clients)
        stuck = [name for name, count in before.items() if now[name] <= count]
        if not stuck or time.monotonic() > deadline:
            return stuck
        time.sleep(0.1)


def _all(clients: Sequence[Client]) -> dict[str, int]:
    return {name: count for client in clients for name, count in client.progress().items()}


def scene(cluster: RealCluster) -> str:
    """Where every thread of ours is, and what each broker says of each partition."""
    frames = sys._current_frames()
    lines = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread is not threading.current_thread():
            lines += [f"--- thread {thread.name}", *traceback.format_stack(frame)[-4:]]
    for broker in cluster.brokers.values():
        lines.append(f"--- metadata of broker {broker.number}")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0, "error_cb": quiet})
        try:
            topics = admin.list_topics(timeout=5).topics
        except ck.KafkaException as problem:
            lines.append(f"none: {problem}")
            continue
        lines += [
            f"{name}-{row.id}: leader {row.leader}, in sync {row.isrs} of {row.replicas}, {row.error}"
            for name, topic in sorted(topics.items())
            for row in topic.partitions.values()
        ]
    return "\n".join([*lines, cluster.log()])
