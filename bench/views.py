"""Views: what a reader gets and what it costs, against a client that reads everything and filters by itself.

python bench/views.py [--records 1000000] [--codec none] [--json]

One percent of the records match. Each filter is read three times: by a client that filters by itself, through a view that
nobody has read before (cold), and once more (cached). CPU is that of the broker's process and of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any, NamedTuple

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from load import Used

from headrace.records.filters import FilterInput, compile_filter
from headrace.testing.broker_process import BrokerProcess

FILTERS = {
    "a tag": 'tag == "eu"',
    "a text in JSON": 'value.region == "eu"',
    "a number in JSON": "value.amount >= 990",
}
PARTITIONS = 4


class Cost(NamedTuple):
    seconds: float
    broker_cpu_s: float
    client_cpu_s: float
    received_bytes: int
    matches: int


def fill(bootstrap: str, topic: str, records: int, codec: str) -> None:
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": codec,
         "queue.buffering.max.messages": 500_000}
    )  # fmt: skip
    for number in range(records):
        amount = number * 7919 % 1000
        region = "eu" if amount >= 990 else ("us", "asia", "africa")[number % 3]
        value = json.dumps({"id": number, "amount": amount, "region": region, "text": "lorem ipsum " * 8})
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    str(number % 5_000),
                    number // 200 % PARTITIONS,
                    headers=[("tag", region.encode())],
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0


def read(broker: BrokerProcess, topic: str, where: str | None) -> Cost:
    """To the end of every partition. With `where` the client filters by itself, as it would with any Kafka."""
    received = [0]

    def heard(text: str) -> None:
        received[0] = sum(node["rxbytes"] for node in json.loads(text)["brokers"].values())

    wanted = None if where is None else compile_filter(where)
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False,
         "enable.partition.eof": True, "statistics.interval.ms": 200, "stats_cb": heard}
    )  # fmt: skip
    broker_before, client_before, began = Used.by(broker.pid).cpu_s, time.process_time(), time.perf_counter()
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    matches, ends = 0, 0
    while ends < PARTITIONS:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is not None:
                ends += 1
            elif wanted is None or wanted.matches(as_input(message)):
                matches += 1
    seconds = time.perf_counter() - began
    cost = Cost(
        seconds, Used.by(broker.pid).cpu_s - broker_before, time.process_time() - client_before, 0, matches
    )
    consumer.poll(0.4)
    consumer.close()
    return cost._replace(received_bytes=received[0])


def as_input(message: Any) -> FilterInput:
    headers = tuple(message.headers() or ())
    return FilterInput(message.key(), message.value(), headers, message.timestamp()[1], message.offset())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--codec", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report: dict[str, Any] = {
        "records": given.records,
        "codec": given.codec,
        "load": os.getloadavg()[0],
        "rows": [],
    }
    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(20)
        fill(broker.bootstrap, "orders", given.records, given.codec)
        for number, (what, where) in enumerate(FILTERS.items()):
            view = f"view{number}"
            config = {"headrace.view.source": "orders", "headrace.view.where": where}
            admin.create_topics([NewTopic(view, -1, -1, config=config)])[view].result(20)
            rows = {
                "client filters": read(broker, "orders", where),
                "view, cold": read(broker, view, None),
                "view, cached": read(broker, view, None),
            }
            assert len({cost.matches for cost in rows.values()}) == 1, rows
            report["rows"] += [
                {"filter": what, "reader": reader, **cost._asdict()} for reader, cost in rows.items()
            ]
        report["broker_rss_bytes"] = Used.by(broker.pid).rss_bytes
    if given.json:
        print(json.dumps(report, indent=2))
        return
    print(
        f"{given.records} records, {given.codec}; load {report['load']:.1f}; broker {report['broker_rss_bytes'] >> 20} MiB"
    )
    for row in report["rows"]:
        print(
            f"{row['filter']:18} {row['reader']:15} {given.records / row['seconds']:12,.0f} records/s  "
            f"broker {row['broker_cpu_s']:6.2f} s  client {row['client_cpu_s']:6.2f} s  "
            f"{row['received_bytes'] / 1e6:9.2f} MB  {row['matches']} matches"
        )


if __name__ == "__main__":
    main()
