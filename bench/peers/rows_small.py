"""Small messages: one at a time from many connections and from one; and a task queue, published to and worked off."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import confluent_kafka as ck
import sqs_load
from load import Crowd, produce

import rest
from peers.headrace_peer import Headrace, HeadraceInterval
from peers.kafka_doors import KafkaPeer
from peers.kafka_peer import Kafka, KafkaSynced
from peers.nats_peer import Nats, NatsSynced
from peers.rabbitmq_peer import RabbitMq
from peers.redis_peer import Redis, RedisSynced
from peers.rounds import Figure, Goal, Row, Size, Turns
from peers.servers import Line, Meter

TASK_BYTES = 256
BURST = 100
PING = b"PING\r\n"
"""NATS asks clients whether they live; they need not answer within minutes."""


class SmallPeer(Protocol):
    def line(self, size: int = 100) -> Line: ...
    def pids(self) -> list[int]: ...
    def take_tasks(self, count: int) -> int: ...


def _single(connections: int) -> Callable[[SmallPeer, Size], Turns]:
    def work(peer: SmallPeer, size: Size) -> Turns:
        lines = [peer.line() for _ in range(connections)]
        crowd = Crowd([(line.socket, line.frame) for line in lines], PING)
        try:
            for line in lines:
                publish(line, 1)
            count = size.requests if connections > 1 else size.alone
            crowd.run(count)  # a JVM is not itself before it is warm
            while True:
                own = time.process_time()
                found = counted(peer.pids(), "requests/s", "CPU µs", lambda: crowd.run(count)[0])
                yield {**found, "client CPU µs": (time.process_time() - own) / count * 1e6}
        finally:
            crowd.close()

    return work


def counted(pids: list[int], rate: str, cost: str, work: Callable[[], int]) -> dict[str, float]:
    meter, began = Meter(pids), time.perf_counter()
    count = work()
    seconds = time.perf_counter() - began
    return {rate: count / seconds, cost: meter.spent_s() / count * 1e6}


def publish(line: Line, count: int, first: int = 0) -> int:
    """So many, up to a hundred in flight, until all are acknowledged; `first` were before."""
    sent = done = 0
    while done < count:
        if sent < count and sent - done <= BURST // 2:
            burst = min(BURST // 2, count - sent)
            line.socket.sendall(line.frame * burst)
            sent += burst
        data = line.socket.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        done = line.tally(data) - first
    return count


def _tasks(peer: SmallPeer, size: Size) -> Turns:
    count = size.queued * 10
    publish(line := peer.line(TASK_BYTES), count // 5)
    line.socket.close()
    peer.take_tasks(10**9 if not isinstance(peer, RabbitMq) else count // 5)
    while True:
        line = peer.line(TASK_BYTES)
        put = counted(peer.pids(), "published/s", "publish CPU µs", lambda: publish(line, count))  # noqa: B023
        line.socket.close()
        taken = counted(peer.pids(), "taken/s", "take CPU µs", lambda: peer.take_tasks(count))
        yield {**put, **taken}


def _share_group(peer: KafkaPeer, size: Size) -> Turns:
    """librdkafka publishes, members of a share group take and acknowledge."""
    peer.create("shared")
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[reset])
    admin = peer.admin()
    for future in admin.incremental_alter_configs([group]).values():
        future.result(60)
    count = size.queued * 10
    settings: dict[str, Any] = {"acks": "all", "linger.ms": 5, "log_level": 0}

    def put(many: int) -> int:
        return produce(peer.bootstrap, "shared", many, TASK_BYTES, **settings)[0]

    put(count // 5)
    with _Worker(peer.bootstrap) as worker:
        worker.take(count // 5)
        while True:
            published = counted(peer.pids(), "published/s", "publish CPU µs", lambda: put(count))
            taken = counted(peer.pids(), "taken/s", "take CPU µs", lambda: worker.take(count))
            yield {**published, **taken}


class _Worker:
    def __init__(self, bootstrap: str) -> None:
        self._consumer = ck.ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "workers", "log_level": 0}
        )

    def __enter__(self) -> _Worker:
        self._consumer.subscribe(["shared"])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def take(self, count: int) -> int:
        got, deadline = 0, time.monotonic() + 90
        while got < count:
            got += sum(1 for message in self._consumer.poll(timeout=0.5) or () if message.error() is None)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{count - got} of {count} tasks did not come")
        self._consumer.commit_sync(10)
        return got


def _rest(peer: Headrace, size: Size) -> Turns:
    """A hundred records a request, the way a program with tasks to publish does it; eight connections."""
    peer.create("rested")
    body = json.dumps({"records": [{"value": "x" * TASK_BYTES}] * BURST}).encode()
    request = rest.request("POST", "/topics/rested/records", body, "application/json")
    connection = rest.Connection(peer.http_ports[0])
    connection.ask(request)
    while True:

        def work() -> int:
            for _ in range(max(1, size.queued * 10 // BURST)):
                connection.ask(request)
            return max(1, size.queued * 10 // BURST) * BURST

        yield counted(peer.pids(), "published/s", "publish CPU µs", work)


def _boto3(peer: Headrace, size: Size) -> Turns:
    """boto3 as it comes, ten messages a request, from four threads."""
    import boto3

    port = peer.http_ports[0]
    url = sqs_load.ask(port, "CreateQueue", QueueName="boto")["QueueUrl"]
    clients = [
        boto3.client(
            "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        for _ in range(4)
    ]  # fmt: skip
    each = max(1, size.queued // 40)
    entries = [{"Id": str(number), "MessageBody": "x" * TASK_BYTES} for number in range(10)]

    def send(client: Any) -> None:
        for _ in range(each):
            client.send_message_batch(QueueUrl=url, Entries=entries)

    def work() -> int:
        threads = [threading.Thread(target=send, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return each * 40

    work()
    while True:
        yield counted(peer.pids(), "published/s", "publish CPU µs", work)


EVERYBODY = (Headrace, HeadraceInterval, Kafka, KafkaSynced, Nats, NatsSynced, Redis, RedisSynced, RabbitMq)
RATE, COST = "requests/s", "CPU µs"
PUBLISHED = (Figure("published/s", more=True), Figure("publish CPU µs"), Figure("taken/s", more=True), Figure("take CPU µs"))  # fmt: skip
ROWS = [
    Row(
        "single-64", "single records, 64 connections, one in flight on each",
        (Figure(RATE, True, Goal(15_000)), Figure(COST, goal=Goal(40))), EVERYBODY, _single(64), note="bare sockets, 100 B, acks=all",
    ),
    Row(
        "single-1", "single records, one connection, one in flight",
        (Figure(RATE, True, Goal(1.3, ("kafka-fsync",))), Figure(COST, goal=Goal(150))), EVERYBODY, _single(1),
        note="bare socket, 100 B, acks=all",
    ),
]  # fmt: skip
TASKS = [
    Row(
        "tasks-share", "task queue: share group", (PUBLISHED[0], Figure("publish CPU µs", goal=Goal(8)), *PUBLISHED[2:]),
        (Headrace, HeadraceInterval, Kafka, KafkaSynced), _share_group, note="librdkafka in Python, 256 B; one worker",
    ),
    Row(
        "tasks-others", "task queue: streams and queues of others", PUBLISHED, (Nats, NatsSynced, Redis, RedisSynced, RabbitMq), _tasks,
        note="bare socket, 256 B, up to 100 in flight; taken and acknowledged a hundred at a time",
    ),
    Row("tasks-rest", "task queue: REST, a hundred a request", (PUBLISHED[0], Figure("publish CPU µs", goal=Goal(25))), (Headrace,), _rest),
    Row("tasks-boto3", "task queue: SQS with boto3, tens", (PUBLISHED[0], Figure("publish CPU µs", goal=Goal(150))), (Headrace,), _boto3),
]  # fmt: skip
