"""What the SDK costs over the client under it (F86): CPU of the client process per message, alternating, one broker.

    python bench/sdk.py [--messages 200000] [--trials 5] [--json FILE]

Each trial runs in a process of its own, so that CPU time is that of one client and its threads. Rows: confluent-kafka without and with a
callback per message, and idempotent with one (what `publish` sets and does), `Client.publish`, `Client.publish_many`; confluent-kafka's `consume`, `Client.subscribe` alone and as a group.
Ratios are to the client under it in the same trial.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka as ck

from headrace import Client
from headrace.testing.broker_process import BrokerProcess

VALUE = b"v" * 100


def produce(bootstrap: str, topic: str, count: int, told: bool, idempotent: bool = False) -> None:
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": idempotent})
    seen: list[int] = []

    def answered(error: ck.KafkaError | None, message: ck.Message) -> None:
        seen.append(message.offset() or 0)

    for number in range(count):
        while True:
            try:
                if told:
                    producer.produce(topic, VALUE, b"%d" % number, on_delivery=answered)
                else:
                    producer.produce(topic, VALUE, b"%d" % number)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


def publish(bootstrap: str, topic: str, count: int, many: bool) -> None:
    with Client(bootstrap) as client:
        if many:
            client.publish_many(topic, (VALUE for _ in range(count)))
        else:
            for number in range(count):
                client.publish(topic, VALUE, key=b"%d" % number)


def consume(bootstrap: str, topic: str, count: int) -> None:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"g-{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    left = count
    while left > 0:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None and message.value() is not None and message.offset() is not None:
                left -= 1
    consumer.close()


def subscribe(bootstrap: str, topic: str, count: int, group: bool) -> None:
    with Client(bootstrap) as client:
        left = count
        for message in client.subscribe(topic, group=f"g-{time.time_ns()}" if group else None):
            if message.value is not None and message.offset is not None:  # as the one below reads them
                left -= 1
            if not left:
                return


WORK = {
    "confluent produce": lambda b, t, n: produce(b, t, n, told=False),
    "confluent produce, told": lambda b, t, n: produce(b, t, n, told=True),
    "confluent idempotent, told": lambda b, t, n: produce(b, t, n, told=True, idempotent=True),
    "sdk publish": lambda b, t, n: publish(b, t, n, many=False),
    "sdk publish_many": lambda b, t, n: publish(b, t, n, many=True),
    "confluent consume": consume,
    "sdk subscribe": lambda b, t, n: subscribe(b, t, n, group=False),
    "sdk subscribe, group": lambda b, t, n: subscribe(b, t, n, group=True),
}


def child(name: str, bootstrap: str, topic: str, count: int) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    WORK[name](bootstrap, topic, count)
    print(
        json.dumps(
            {
                "cpu_us": (time.process_time() - cpu) / count * 1e6,
                "rate": count / (time.perf_counter() - began),
            }
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], args.child[1], args.child[2], args.messages)
        return 0
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WORK}
    with BrokerProcess() as broker:
        with Client(broker.bootstrap) as client:  # something to read
            client.publish_many("read", (VALUE for _ in range(args.messages)))
        for _ in range(args.trials):
            for name in WORK:
                topic = "read" if "consume" in name or "subscribe" in name else "written"
                command = [
                    sys.executable,
                    __file__,
                    "--messages",
                    str(args.messages),
                    "--child",
                    name,
                    broker.bootstrap,
                    topic,
                ]
                found[name].append(
                    json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                )
    rows: dict[str, dict[str, float]] = {}
    for name, trials in found.items():
        row = {key: statistics.median(trial[key] for trial in trials) for key in ("cpu_us", "rate")}
        rows[name] = row
        reads = "subscribe" in name or "consume" in name
        for under in ["confluent consume"] if reads else ["confluent produce", "confluent idempotent, told"]:
            # Trial by trial: what else the host does weighs on neighbours alike.
            row[f"of {under}"] = statistics.median(
                trial["cpu_us"] / beside["cpu_us"] for trial, beside in zip(trials, found[under], strict=True)
            )
        ratios = "  ".join(f"x{value:.2f} {key}" for key, value in row.items() if key.startswith("of "))
        print(f"{name:26} {row['cpu_us']:6.1f} us CPU {row['rate']:10,.0f}/s  {ratios}")
    print(f"load {os.getloadavg()[0]:.0f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
