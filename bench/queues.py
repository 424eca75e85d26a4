"""Queues: SQS messages/s and CPU per message against moto and ElasticMQ in the same run; share groups; delays; memory.

python bench/queues.py [--messages 4000] [--rounds 3] [--only sqs,share,delay,header,backlog] [--delays 10000,1000000]
                       [--backlog 10000000] [--json]

The clients are plain sockets that send prepared requests (sqs_load.py), because boto3 costs far more than the servers it asks.
The peers are those of `make bench-peers`; without Maven, java or a network ElasticMQ is left out. The load of the
machine before and after is printed with the figures, because they mean little without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from load import Used, produce
from peers.servers import Unobtainable
from peers.sqs_peers import ElasticMq, Moto, SqsPeer
from sqs_load import Client, ask, request, run

from headrace.testing.broker_process import BrokerProcess

BODY = b64encode(os.urandom(192)).decode()
BATCH = 10
WORKERS = 8


def timed(pid: int, work: Callable[[], int]) -> dict[str, float]:
    """Messages/s and the server's CPU for each message; `work` says how many there were."""
    before, began = Used.by(pid).cpu_s, time.perf_counter()
    total = work()
    seconds = time.perf_counter() - began
    return {
        "messages": total,
        "per_s": round(total / seconds),
        "cpu_us": round((Used.by(pid).cpu_s - before) / max(1, total) * 1e6, 1),
    }


def send(url: str, count: int) -> Client:
    prepared = request("SendMessage", QueueUrl=url, MessageBody=BODY)
    for _ in range(count):
        yield prepared
    return count


def send_batches(url: str, count: int) -> Client:
    entries = [{"Id": str(number), "MessageBody": BODY} for number in range(BATCH)]
    prepared = request("SendMessageBatch", QueueUrl=url, Entries=entries)
    for _ in range(count // BATCH):
        yield prepared
    return count // BATCH * BATCH


def take(url: str, count: int, at_once: int) -> Client:
    """Receive and delete, so many in a request; until there are no more."""
    prepared = request("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=at_once)
    taken = 0
    while taken < count:
        messages = json.loads((yield prepared) or b"{}").get("Messages", [])
        if not messages:
            break
        handles = [message["ReceiptHandle"] for message in messages]
        if at_once == 1:
            yield request("DeleteMessage", QueueUrl=url, ReceiptHandle=handles[0])
        else:
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
            yield request("DeleteMessageBatch", QueueUrl=url, Entries=entries)
        taken += len(messages)
    return taken


def sqs_round(port: int, pid: int, count: int, queue: str = "bench") -> dict[str, Any]:
    url = ask(port, "CreateQueue", QueueName=queue)["QueueUrl"]

    def by_all(client: Callable[..., Client], total: int, *more: int) -> dict[str, float]:
        share = total // WORKERS
        return timed(pid, lambda: run(port, [client(url, share, *more) for _ in range(WORKERS)]))

    return {
        "send": by_all(send, count),
        "send in tens": by_all(send_batches, count * 5),
        "receive and delete": by_all(take, count, 1),
        "receive and delete in tens": by_all(take, count * 5, BATCH),
    }


@contextmanager
def served(kind: type[SqsPeer]) -> Iterator[tuple[int, int]]:
    """Port and process of a peer, once it answers."""
    with tempfile.TemporaryDirectory(prefix="queues-") as scratch:
        peer = kind(Path(scratch))
        peer.obtain()
        peer.start()
        try:
            yield peer.http_ports[0], peer.pids()[0]
        finally:
            peer.kill()


def best_of(rounds: int, port: int, pid: int, count: int) -> dict[str, Any]:
    """Of each row the round with the highest rate: others use this machine too, and one round meets them or does not."""
    found = [sqs_round(port, pid, count, queue=f"bench-{number}") for number in range(rounds)]
    return {row: max((one[row] for one in found), key=lambda figures: figures["per_s"]) for row in found[0]}


def bench_sqs(count: int, rounds: int) -> dict[str, Any]:
    """All three in one run, each warmed up first: a JVM is not itself before it is, and nobody is at the first request."""
    with BrokerProcess() as broker:
        sqs_round(broker.http_port, broker.pid, min(count, 1_000), queue="warm")
        found = {"headrace": best_of(rounds, broker.http_port, broker.pid, count)}
    try:
        with served(ElasticMq) as (port, pid):
            sqs_round(port, pid, count, queue="warm")
            found["elasticmq"] = best_of(rounds, port, pid, count)
    except Unobtainable as missing:
        print(f"ElasticMQ is left out: {missing}", file=sys.stderr)
    with served(Moto) as (port, pid):
        found["moto"] = best_of(1, port, pid, min(count, 160))
    return found


def bench_share(count: int) -> dict[str, Any]:
    with BrokerProcess() as broker:
        from confluent_kafka.admin import (
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            NewTopic,
            ResourceType,
        )  # fmt: skip

        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("share", 1, 1)]).values():
            future.result()
        reset = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        group = ConfigResource(ResourceType.GROUP, "bench", incremental_configs=[reset])
        for future in admin.incremental_alter_configs([group]).values():
            future.result()
        produce(broker.bootstrap, "share", count, 256)
        seen = 0
        lock = threading.Lock()

        def work() -> None:
            nonlocal seen
            consumer = ck.ShareConsumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "log_level": 0}
            )
            consumer.subscribe(["share"])
            while seen < count:
                got = sum(1 for message in consumer.poll(timeout=0.5) or () if message.error() is None)
                with lock:
                    seen += got
            consumer.commit_sync(10)
            consumer.close()

        def all_of_them() -> int:
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return seen

        return {"share group x 4 on one partition": timed(broker.pid, all_of_them)}


def bench_delay(pending: int) -> dict[str, Any]:
    """How late messages are, each with its own time, while so many wait; and what looking through those costs."""
    with BrokerProcess() as broker:
        port = broker.http_port
        ask(port, "CreateQueue", QueueName="delay")
        idle, began = Used.by(broker.pid), time.perf_counter()
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
        probes = 2_000
        far = pending - probes
        wait_far(producer, "delay", far)
        while True:  # the queue has looked through all of them: then it is about time, not about reading
            shown = ask(port, "GetQueueAttributes", QueueUrl="delay", AttributeNames=["All"])["Attributes"]
            if int(shown["ApproximateNumberOfMessagesDelayed"]) >= far:
                break
            time.sleep(0.2)
        read_s, read_cpu = time.perf_counter() - began, Used.by(broker.pid).cpu_s - idle.cpu_s
        probe(producer, "delay", probes, gap_ms=5)
        late: list[int] = []
        run(port, [receive_probes(probes, late)])
        grown = Used.by(broker.pid).rss_bytes - idle.rss_bytes
        return {
            f"delay with {pending} pending": {
                **lateness(late),
                "bytes_per_pending": round(grown / pending),
                "taken_in_per_s": round(far / read_s),
                "taken_in_cpu_us": round(read_cpu / far * 1e6, 1),
            }
        }


def receive_probes(count: int, late: list[int]) -> Client:
    wait = request("ReceiveMessage", QueueUrl="delay", MaxNumberOfMessages=10, WaitTimeSeconds=10)
    while len(late) < count:
        messages = json.loads((yield wait)).get("Messages")
        now = int(time.time() * 1000)
        if not messages:
            break
        late += [now - int(message["Body"]) for message in messages]
    return len(late)


def bench_header_delay(pending: int, probes: int = 500) -> dict[str, Any]:
    """The same for a plain Kafka consumer of a topic with delays: from the due time to the poll that returns the record."""
    from confluent_kafka.admin import AdminClient, NewTopic

    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("later", 1, 1, config={"headrace.delay.enabled": "true"})
        for future in admin.create_topics([topic]).values():
            future.result()
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
        wait_far(producer, "later", pending - probes)
        probe(producer, "later", probes, gap_ms=20)
        consumer = ck.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "bench",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        consumer.assign([ck.TopicPartition("later", 0, ck.OFFSET_BEGINNING)])
        late: list[int] = []
        deadline = time.monotonic() + 60 + probes * 0.02
        while len(late) < probes and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                late.append(int(time.time() * 1000) - int(message.value()))
        consumer.close()
        return {f"header delay with {pending} pending": lateness(late)}


def wait_far(producer: ck.Producer, topic: str, count: int) -> None:
    """So many that wait for an hour."""
    far = str(int(time.time() * 1000) + 3_600_000).encode()
    for _ in range(max(0, count)):
        delayed(producer, topic, b"far", far)
    producer.flush()


def probe(producer: ck.Producer, topic: str, count: int, gap_ms: int) -> None:
    """So many that are due one after the other, from five seconds from now; each says when."""
    start = int(time.time() * 1000) + 5_000
    for number in range(count):
        due = str(start + number * gap_ms).encode()
        delayed(producer, topic, due, due)
    producer.flush()


def delayed(producer: ck.Producer, topic: str, value: bytes, due: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, headers=[("headrace-deliver-at", due)])
            return
        except BufferError:
            producer.poll(0.1)


def lateness(late: list[int]) -> dict[str, Any]:
    late.sort()
    return {
        "probes": len(late),
        "early": sum(1 for error in late if error < 0),
        "p50_ms": statistics.median(late) if late else None,
        "p99_ms": late[int(len(late) * 0.99)] if late else None,
    }


def bench_backlog(count: int) -> dict[str, Any]:
    """Memory with so many messages waiting to be received: in proportion to what is in flight, not to the backlog."""
    with BrokerProcess() as broker:
        port = broker.http_port
        ask(port, "CreateQueue", QueueName="backlog")
        before = Used.by(broker.pid).rss_bytes
        produce(broker.bootstrap, "backlog", count, 100)
        for _ in range(100):
            ask(port, "ReceiveMessage", QueueUrl="backlog", MaxNumberOfMessages=10)
        shown = ask(port, "GetQueueAttributes", QueueUrl="backlog", AttributeNames=["All"])["Attributes"]
        after = Used.by(broker.pid).rss_bytes
        return {
            f"backlog of {count}": {
                "ready": int(shown["ApproximateNumberOfMessages"]),
                "in_flight": int(shown["ApproximateNumberOfMessagesNotVisible"]),
                "rss_mb": round(after / 1e6),
                "grown_mb": round((after - before) / 1e6),
            }
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3, help="Of SQS, of which the best counts.")
    parser.add_argument("--delays", default="10000,1000000", help="How many wait; one run for each.")
    parser.add_argument("--backlog", type=int, default=10_000_000)
    parser.add_argument("--only", default="sqs,share,delay,header,backlog")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    delays = [int(count) for count in given.delays.split(",")]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "sqs": lambda: bench_sqs(given.messages, given.rounds),
        "share": lambda: bench_share(given.messages * 25),
        "delay": lambda: {key: row for count in delays for key, row in bench_delay(count).items()},
        "header": lambda: bench_header_delay(delays[0]),
        "backlog": lambda: bench_backlog(given.backlog),
    }
    found: dict[str, Any] = {"load before": os.getloadavg()[0]}
    for name in given.only.split(","):
        found |= parts[name]()
    found["load after"] = os.getloadavg()[0]
    print(json.dumps(found, indent=None if given.json else 2))


if __name__ == "__main__":
    main()
