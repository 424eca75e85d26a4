"""What costs without work: idle brokers, partitions that nobody uses, starts; and a leader that dies."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck

from peers.headrace_peer import Headrace, HeadraceCluster, ThreeHeadraces
from peers.kafka_doors import KafkaPeer
from peers.kafka_peer import Kafka, KafkaSynced, ThreeKafkas, ThreeKafkasSynced
from peers.nats_peer import Nats, NatsSynced
from peers.rabbitmq_peer import RabbitMq
from peers.redis_peer import Redis, RedisSynced
from peers.rounds import Figure, Goal, Row, Size, Turns
from peers.rows_small import publish
from peers.servers import Meter, Peer, cpu_s, memory_mb

PARTITIONS = 4
SETTLE_S = 2.0
CREATE_AT_ONCE = 50


def idle_percent(pids: list[int], seconds: float) -> float:
    meter, began = Meter(pids), time.perf_counter()
    time.sleep(seconds)
    return meter.spent_s() / (time.perf_counter() - began) * 100


def _idle(peer: Peer, size: Size) -> Turns:
    time.sleep(min(SETTLE_S, size.idle_s))
    while True:
        found = {"% CPU": idle_percent(peer.pids(), size.idle_s), "memory MB": memory_mb(peer.pids())}
        if isinstance(peer, HeadraceCluster):
            found["with coordinator % CPU"] = found["% CPU"] + idle_percent(peer.coordinator_pids(), size.idle_s)  # fmt: skip
        yield found


def _partitions(peer: KafkaPeer, size: Size) -> Turns:
    """Made, idle, started again after a stop and after a kill: one round for each fresh broker."""
    peer.start()
    total = size.topics * PARTITIONS
    time.sleep(min(SETTLE_S, size.idle_s))
    memory = memory_mb(peer.pids())
    meter, began = Meter(peer.pids()), time.perf_counter()
    create_many(peer, size.topics)
    found = {
        "create ms a partition": (time.perf_counter() - began) * 1e3 / total,
        "create CPU-ms a partition": meter.spent_s() * 1e3 / total,
    }
    began = time.perf_counter()
    first_messages(peer.bootstrap, size.topics)
    found["first message to each topic s"] = time.perf_counter() - began
    time.sleep(min(SETTLE_S, size.idle_s))
    found["idle % CPU"] = idle_percent(peer.pids(), size.idle_s)
    found["memory MB for them"] = memory_mb(peer.pids()) - memory
    peer.stop()
    found["start s, clean"] = start_to_ack(peer)
    peer.kill()
    found["start s, after kill -9"] = start_to_ack(peer)
    yield found


def create_many(peer: KafkaPeer, topics: int) -> None:
    from confluent_kafka.admin import NewTopic

    admin = peer.admin()
    for first in range(0, topics, CREATE_AT_ONCE):
        names = [f"many-{number}" for number in range(first, min(topics, first + CREATE_AT_ONCE))]
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names], operation_timeout=120, request_timeout=150)  # fmt: skip
        for future in made.values():
            future.result(180)


def first_messages(bootstrap: str, topics: int) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
    failed = []
    for number in range(topics):
        producer.produce(f"many-{number}", b"first", on_delivery=lambda error, _: failed.append(error) if error else None)  # fmt: skip
        producer.poll(0)
    if producer.flush(180) or failed:
        raise RuntimeError(f"first messages were not taken: {failed[:1]}")


def start_to_ack(peer: Any) -> float:
    """Seconds from the command to the first acknowledged message; it has its data and its ports from before."""
    began = time.perf_counter()
    waiting = threading.Thread(target=peer.launch) if isinstance(peer, Headrace) else None
    if waiting is not None:
        waiting.start()  # it returns when the broker says that it is ready, and by then it may have answered
    else:
        peer.launch()
    deadline = time.monotonic() + 240
    while True:
        with contextlib.suppress(OSError, RuntimeError, ck.KafkaException):
            line = peer.line()
            try:
                publish(line, 1)
                break
            finally:
                line.socket.close()
        if time.monotonic() > deadline:
            raise TimeoutError("no acknowledgement within four minutes of the start")
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    if waiting is not None:
        waiting.join()
    return seconds


def _start(peer: Any, size: Size) -> Turns:
    """With some data in it, after an orderly stop."""
    peer.start()
    line = peer.line(1000)
    publish(line, max(200, size.requests // 2))
    line.socket.close()
    peer.stop()
    while True:
        seconds = start_to_ack(peer)
        used = cpu_s(peer.pids())
        found = {"s": seconds, "CPU-s": used, "memory MB": memory_mb(peer.pids())}
        peer.stop()
        yield found


def _failover(peer: KafkaPeer, size: Size) -> Turns:
    """How long a partition takes nothing when the broker that leads it dies (kill -9); acks=all, two in sync are enough."""
    peer.create("failing", 1, 3, min_insync_replicas="2")
    while True:
        gaps = [_gap(peer) for _ in range(size.kills)]
        yield {"gap s": min(gaps), "worst gap s": max(gaps)}


def _gap(peer: KafkaPeer) -> float:
    acks: list[float] = []
    over = threading.Event()

    def load() -> None:
        producer = ck.Producer(
            {"bootstrap.servers": peer.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
        )  # fmt: skip
        while not over.is_set():
            producer.produce("failing", b"x" * 100, on_delivery=lambda error, _: acks.append(time.monotonic()) if error is None else None)  # fmt: skip
            producer.poll(0)
            time.sleep(0.005)
        producer.flush(60)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        wait_for(lambda: len(acks) > 100)
        wait_for(lambda: in_sync(peer) == 3)
        leader = leader_of(peer)
        peer.kill_broker(leader)
        killed = time.monotonic()
        # The producer had requests at the old leader: one that is late in coming is no sign of the new one.
        wait_for(lambda: bool(acks) and acks[-1] > killed + 0.02)
        time.sleep(0.5)
        after = [at for at in acks if at > killed - 0.5]
        gap = max(two - one for one, two in itertools.pairwise(after))
    finally:
        over.set()
        loading.join()
    peer.start_broker(leader)
    wait_for(lambda: in_sync(peer) == 3)
    return gap


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster did not come to it")
        time.sleep(0.01)


def _partition(peer: KafkaPeer) -> Any:
    try:
        return peer.admin().list_topics("failing", timeout=10).topics["failing"].partitions.get(0)
    except ck.KafkaException:
        return None


def in_sync(peer: KafkaPeer) -> int:
    found = _partition(peer)
    return 0 if found is None else len(found.isrs)


def leader_of(peer: KafkaPeer) -> int:
    wait_for(lambda: (found := _partition(peer)) is not None and found.leader > 0)
    return int(_partition(peer).leader)


IDLE = [
    Row(
        "idle", "idle, one broker without data", (Figure("% CPU", goal=Goal(0.4)), Figure("memory MB")),
        (Headrace, Kafka, KafkaSynced, Nats, Redis, RabbitMq), _idle,
    ),
]  # fmt: skip
THREE = [
    Row(
        "idle-three", "idle, three brokers",
        (Figure("% CPU", goal=Goal(2, side="headrace-three")), Figure("with coordinator % CPU"), Figure("memory MB")),
        (ThreeHeadraces, ThreeKafkas, ThreeKafkasSynced), _idle, note="etcd is apart; Kafka's controllers are in its brokers",
    ),
]  # fmt: skip
FAILOVER = [
    Row(
        "failover", "kill -9 of a leader of three", (Figure("gap s"), Figure("worst gap s")), (ThreeHeadraces, ThreeKafkas, ThreeKafkasSynced),
        _failover, rounds=1, note="as installed: Kafka's session timeout is 9 s",
    ),
]  # fmt: skip
LIFE = [
    Row(
        "start", "start with data to the first ack", (Figure("s", goal=Goal(0.4)), Figure("CPU-s"), Figure("memory MB")),
        (Headrace, Kafka, Nats, NatsSynced, Redis, RedisSynced, RabbitMq), _start, fresh=True,
    ),
    Row(
        "partitions", "many topics of four partitions",
        (
            Figure("create ms a partition", goal=Goal(1.0)), Figure("create CPU-ms a partition", goal=Goal(0.8)),
            Figure("first message to each topic s"), Figure("idle % CPU", goal=Goal(1)), Figure("memory MB for them", goal=Goal(12)),
            Figure("start s, clean", goal=Goal(3)), Figure("start s, after kill -9", goal=Goal(4)),
        ),
        (Headrace, Kafka), _partitions, fresh=True, rounds=1,
        note="1,000 topics in the full run, 50 in the short one: the goals are for 1,000",
    ),
]  # fmt: skip
