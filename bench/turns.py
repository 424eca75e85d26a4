"""Two trees in turns, on brokers that stand side by side: what a unit of work costs the one and the other.

    .venv/bin/python bench/turns.py /work/main . [--rounds 7] [--only consume|crowd|small|sqs|three]

`three` has clusters of three brokers instead, and is run only when it is asked for. Each round gives both the same work, one after the other; who goes first alternates. CPU time is that of the broker's threads (schedstat).
Shown are the least and the median of all rounds, and the median of the ratios: what slows the machine down slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import sqs_load
from guard import cpu_s
from load import Crowd, Drain, Pipeline, fetch_frame, produce, produce_frame
from three import Paced, Three, bulk, crowd, idle

from headrace.testing.broker_process import BrokerProcess

Work = Callable[[], tuple[int, int]]


class Row:
    """A kind of work, for each side; `per` says what of (count, bytes) is a unit."""

    def __init__(self, name: str, unit: str, per: Callable[[int, int], float], works: list[Work]) -> None:
        self.name = f"{name}: {unit}"
        self.per = per
        self.works = works
        self.costs: list[list[float]] = [[], []]
        self.rates: list[list[float]] = [[], []]

    def turn(self, side: int, pids: list[int]) -> None:
        before, began = sum(map(cpu_s, pids)), time.perf_counter()
        units = self.per(*self.works[side]())
        self.costs[side].append((sum(map(cpu_s, pids)) - before) / units)
        self.rates[side].append(units / (time.perf_counter() - began))


def _consume(brokers: list[BrokerProcess]) -> Iterator[Row]:
    for size, megabytes, batch in ((1000, 100, 1_000_000), (1000, 100, 100_000), (100, 30, 1_000_000)):
        topic = f"bulk-{size}-{batch}"
        for broker in brokers:
            produce(broker.bootstrap, topic, megabytes * 1_000_000 // size, size, **{"batch.size": batch})
        for most in (512 << 10, 1 << 20, 2 << 20, 10 << 20):
            drains = [Drain(broker.kafka_port, topic, most) for broker in brokers]
            works = [lambda drain=drain: drain.run(200_000_000) for drain in drains]
            name = f"consume {size} B in batches to {batch // 1000} KB, answers to {most >> 10} KB"
            yield Row(name, "CPU-s/GB", lambda _, size: size / 1e9, works)


def _crowd(brokers: list[BrokerProcess]) -> Iterator[Row]:
    import confluent_kafka.admin as admin

    for broker in brokers:
        client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [
            admin.NewTopic("synced", 1, 1),
            admin.NewTopic("interval", 1, 1, config={"headrace.flush": "interval"}),
        ]
        for made in client.create_topics(topics).values():
            made.result(60)
    for topic, connections, count in (("synced", 64, 8_000), ("interval", 64, 8_000), ("synced", 1, 800)):
        frame = produce_frame(topic, -1)
        crowds = [Crowd.of(broker.kafka_port, frame, connections) for broker in brokers]
        works = [lambda crowd=crowd, count=count: crowd.run(count) for crowd in crowds]
        yield Row(f"{topic}, {connections} connections", "µs CPU", lambda count, _: count / 1e6, works)


def _small(brokers: list[BrokerProcess]) -> Iterator[Row]:
    for broker in brokers:
        produce(broker.bootstrap, "small", 1, 100)
    for name, frame in {
        "produce, acks=1": produce_frame("small", 1),
        "produce, acks=all": produce_frame("small", -1),
        "fetch of one": fetch_frame("small", 0, 1),
    }.items():
        pipelines = [Pipeline(broker.kafka_port, frame) for broker in brokers]
        works = [lambda pipeline=pipeline: pipeline.run(10_000, 64) for pipeline in pipelines]
        yield Row(f"{name}, 64 in flight", "µs CPU", lambda count, _: count / 1e6, works)


def _sqs(brokers: list[BrokerProcess]) -> Iterator[Row]:
    """A message is sent, received and deleted by the same client, one request at a time."""
    urls = [
        sqs_load.ask(broker.http_port, "CreateQueue", QueueName="turns")["QueueUrl"] for broker in brokers
    ]

    def client(url: str, count: int) -> sqs_load.Client:
        for _ in range(count):
            yield sqs_load.request("SendMessage", QueueUrl=url, MessageBody="x" * 100)
            found = yield sqs_load.request("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=5)
            (message,) = json.loads(found)["Messages"]
            yield sqs_load.request("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return count

    def work(port: int, url: str) -> tuple[int, int]:
        return sqs_load.run(port, [client(url, 50) for _ in range(16)]), 0

    works = [
        lambda broker=broker, url=url: work(broker.http_port, url)
        for broker, url in zip(brokers, urls, strict=True)
    ]
    yield Row("SQS, one by one: sent, received, deleted", "µs CPU", lambda count, _: count / 1e6, works)


def _three(sides: list[Three]) -> Iterator[Row]:
    yield Row(
        "three, nothing to do", "% CPU", lambda count, _: count / 1e8, [lambda: idle(3.0) for _ in sides]
    )
    yield Row("RF 3, 1 KB in batches, acks=all", "CPU-s/GB", lambda _, size: size / 1e9, [bulk(side, 60) for side in sides])  # fmt: skip
    yield Row("RF 3, 1,000/s, acks=all", "µs CPU", lambda count, _: count / 1e6, [Paced(side, 2_000) for side in sides])  # fmt: skip
    for connections, count in ((64, 6_000), (1, 500)):
        yield Row(f"RF 3, {connections} connections", "µs CPU", lambda count, _: count / 1e6, [crowd(side, connections, count) for side in sides])  # fmt: skip


ROOMS = {"consume": _consume, "crowd": _crowd, "small": _small, "sqs": _sqs}


def _prepare(stack: ExitStack, options: argparse.Namespace) -> tuple[list[Row], list[list[int]]]:
    """What is to be done, and the processes of each side."""
    environments = [
        {
            "PYTHONPATH": str(tree.resolve() / "src"),
            "PYTHONPYCACHEPREFIX": str(tree.resolve() / ".pycache"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        for tree in (options.before, options.after)
    ]
    if options.only == "three":
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turns-")))
        clusters = [
            stack.enter_context(Three(scratch / str(side), environment))
            for side, environment in enumerate(environments)
        ]
        return list(_three(clusters)), [cluster.pids for cluster in clusters]
    brokers = [stack.enter_context(BrokerProcess(environment=environment)) for environment in environments]
    rows = [row for name, room in ROOMS.items() if options.only in (None, name) for row in room(brokers)]
    return rows, [[broker.pid] for broker in brokers]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=[*ROOMS, "three"])
    options = parser.parse_args()
    with ExitStack() as stack:
        rows, pids = _prepare(stack, options)
        for number in range(options.rounds):
            for row in rows:
                for side in (0, 1) if number % 2 else (1, 0):
                    row.turn(side, pids[side])
    print(
        f"load {os.getloadavg()[0]:.1f}; least / median, before -> after, median of the ratios; units a second (best)"
    )
    for row in rows:
        before, after = row.costs
        ratio = statistics.median(two / one for one, two in zip(before, after, strict=True))
        print(
            f"{row.name:70} {min(before):8.3f} / {statistics.median(before):8.3f} -> {min(after):8.3f} / {statistics.median(after):8.3f}"
            f"   x{ratio:.2f}   {max(row.rates[0]):8.4g} -> {max(row.rates[1]):8.4g}"
        )
        if isinstance(row.works[0], Paced):
            print(f"{'':70} {row.works[0]} -> {row.works[1]}")


if __name__ == "__main__":
    main()
