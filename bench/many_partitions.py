"""What partitions cost that nobody uses (F27): making them, idling with them, starting with them, an id beside them.

python bench/many_partitions.py [--partitions 2000]

Half of them in one topic, half as topics of their own. CPU time of the broker's process, so a busy machine changes the figures little.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from raw_client import RawClient

from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest

IDLE_S = 10
BATCH = 100


def cpu_s(broker: BrokerProcess) -> float:
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def show(what: str, value: float, unit: str) -> None:
    print(f"{what:<44} {value:>9.2f} {unit}", flush=True)


def idle_percent(broker: BrokerProcess) -> float:
    time.sleep(2)
    before = cpu_s(broker)
    time.sleep(IDLE_S)
    return (cpu_s(broker) - before) / IDLE_S * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=2000)
    half = parser.parse_args().partitions // 2
    with BrokerProcess(start_seconds=120) as broker:
        with RawClient(broker.kafka_port, 600) as client:
            show("idle, empty", idle_percent(broker), "% of a core")
            before = cpu_s(broker)
            client.create_topic("wide", half)
            show(f"one topic of {half} partitions", cpu_s(broker) - before, "CPU s")
            before = cpu_s(broker)
            for first in range(0, half, BATCH):
                topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(first, first + BATCH)]
                answer = client.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics))
                assert not any(row.error_code for row in answer.topics), answer
            show(f"{half} topics of one partition", cpu_s(broker) - before, "CPU s")
            show("idle with them", idle_percent(broker), "% of a core")
            before = cpu_s(broker)
            for _ in range(100):
                client.call(ApiKey.INIT_PRODUCER_ID, 0, InitProducerIdRequest(None, 1000))
            show("InitProducerId", (cpu_s(broker) - before) * 10, "CPU ms each")
        broker.stop(60)
        broker.start()
        show("start with them", cpu_s(broker), "CPU s")


if __name__ == "__main__":
    main()
