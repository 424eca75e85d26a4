"""What looking at records costs (A5, F9): the broker's CPU per GB of plain data with `record.validation` off and on.

    .venv/bin/python bench/record_walk.py [--mb 60] [--rounds 7] [--only NAME] [--json]

Batches of about 1 MB are made once and sent again and again over a bare socket, in turns to a topic that looks and to one that
does not, in one broker. CPU time of all its threads in nanoseconds, medians: a busy machine moves both alike.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from load import Pipeline
from single_node import COMPILED

from headrace.core.ids import ZERO_UUID
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.codec import encode
from headrace.wire.framing import RequestHeader, encode_request_frame
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from raw_client import RawClient

from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

BATCH_BYTES = 1_000_000
Make = Callable[[random.Random, int], Record]


def _noise(low: int, high: int, key: int | None = None) -> Make:
    return lambda dice, _: Record(
        None if key is None else dice.randbytes(key), dice.randbytes(dice.randint(low, high))
    )


def _zeros(low: int, high: int) -> Make:
    return lambda dice, _: Record(None, bytes(dice.randint(low, high)))


def _keyed(low: int, high: int) -> Make:
    return lambda dice, index: Record(
        b"user-%d" % dice.randrange(100_000), dice.randbytes(dice.randint(low, high))
    )


def _with_headers(low: int, high: int) -> Make:
    return lambda dice, _: Record(
        b"k" * 16,
        dice.randbytes(dice.randint(low, high)),
        (("trace", dice.randbytes(dice.randint(16, 32))), ("kind", b"order")),
    )


KINDS: dict[str, tuple[Make, Codec]] = {
    "1 KB, all of one size": (_noise(1000, 1000), Codec.NONE),
    "0.7 to 1.3 KB": (_noise(700, 1300), Codec.NONE),
    "0.7 to 1.3 KB, keys of 6 to 10 bytes": (_keyed(700, 1300), Codec.NONE),
    "0.7 to 1.3 KB, two headers": (_with_headers(700, 1300), Codec.NONE),
    "100 bytes, all of one size": (_noise(100, 100), Codec.NONE),
    "80 to 140 bytes": (_noise(80, 140), Codec.NONE),
    "20 to 100 bytes, keys of 6 to 10 bytes": (_keyed(20, 100), Codec.NONE),
    "1 KB of zeros, zstd": (_zeros(1000, 1000), Codec.ZSTD),
    "0.7 to 1.3 KB of zeros, lz4": (_zeros(700, 1300), Codec.LZ4),
}


def cpu_s(pid: int) -> float:
    """Of all threads, to the nanosecond; /proc/PID/stat counts in hundredths."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def a_batch(make: Make, codec: Codec) -> tuple[bytes, int]:
    """(the batch, the plain bytes of its values)."""
    dice = random.Random(7)
    records: list[Record] = []
    size = 0
    while size < BATCH_BYTES:
        records.append(make(dice, len(records)))
        size += len(records[-1].value or b"") + len(records[-1].key or b"") + 10
    return build_batch(records, wall_ms=1_700_000_000_000, codec=codec), size


def a_frame(topic: str, batch: bytes) -> bytes:
    request = ProduceRequest(None, 1, 30_000, [ProduceTopic(topic, ZERO_UUID, [ProducePartition(0, batch)])])
    return b"".join(encode_request_frame(RequestHeader(ApiKey.PRODUCE, 9, 7, "bench"), [encode(request, 9)]))


def compare(kind: str, megabytes: int, rounds: int) -> dict[str, float]:
    batch, size = a_batch(*KINDS[kind])
    count = max(2, megabytes * 1_000_000 // size)
    cost: dict[str, list[float]] = {"off": [], "on": []}
    with BrokerProcess(environment=COMPILED) as broker:
        make_topics(broker.kafka_port)
        pipelines = {which: Pipeline(broker.kafka_port, a_frame(which, batch)) for which in cost}
        for which, pipeline in pipelines.items():
            with RawClient(broker.kafka_port) as client:
                assert client.produce(which, batch).error_code == 0
            pipeline.run(4, 2)
        for number in range(rounds):
            for which in ("off", "on") if number % 2 else ("on", "off"):
                before = cpu_s(broker.pid)
                pipelines[which].run(count, 2)
                cost[which].append((cpu_s(broker.pid) - before) / (count * size / 1e9))
        for pipeline in pipelines.values():
            pipeline.close()
    ratios = [on / off for on, off in zip(cost["on"], cost["off"], strict=True)]
    return {
        "off: CPU-s/GB": statistics.median(cost["off"]),
        "on: CPU-s/GB": statistics.median(cost["on"]),
        "more: %": (statistics.median(ratios) - 1) * 100,
        "lowest of each, more: %": (min(cost["on"]) / min(cost["off"]) - 1) * 100,
    }


def make_topics(port: int) -> None:
    # A segment is rolled and let go soon: the bench writes gigabytes.
    small = [
        CreatableTopicConfig("segment.bytes", "200000000"),
        CreatableTopicConfig("retention.bytes", "200000000"),
    ]
    topics = [
        CreatableTopic("on", 1, 1, configs=small),
        CreatableTopic("off", 1, 1, configs=[*small, CreatableTopicConfig("record.validation", "off")]),
    ]
    with RawClient(port) as client:
        answer = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics))
    assert not any(row.error_code for row in answer.topics), answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=60, help="how much is sent in each turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="kinds whose name has this in it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        if options.only is None or options.only in kind:
            found[kind] = row = compare(kind, options.mb, options.rounds)
            if not options.json:
                print(
                    f"{kind:40}",
                    *(f"{name} {value:7.2f}" for name, value in row.items()),
                    sep="   ",
                    flush=True,
                )
    if options.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
