"""Kafka from Maven Central, in KRaft mode: as installed, and with a sync before each acknowledgement; one broker or three."""

from __future__ import annotations

import signal
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path

from kafka_jars import VERSION, class_path

from headrace.testing.etcd_server import free_ports
from peers.kafka_doors import KafkaPeer, serves_kafka
from peers.servers import HERE, Unobtainable, end, has_program, last_words, wait_until

# What bin/kafka-server-start.sh sets.
JVM = ["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
JVM += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
CLUSTER_ID = urlsafe_b64encode(b"headrace-peers-1").decode().rstrip("=")
SYNC = "log.flush.interval.messages=1\n"


class Kafka(KafkaPeer):
    name = "kafka"
    title = f"Kafka {VERSION}"
    durability = "page cache; synced when the kernel likes"
    brokers = 1
    extra = ""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: list[int] = []

    def obtain(self) -> None:
        has_program("java")
        try:
            class_path()
        except (OSError, subprocess.SubprocessError) as failed:
            raise Unobtainable(f"Maven: {failed}") from failed

    def version(self) -> str:
        return VERSION

    @property
    def ports(self) -> list[int]:
        return self._ports[: self.brokers]

    def start(self) -> None:
        if not self._ports:
            self._ports = free_ports(2 * self.brokers)
            self._format()
        for number in range(1, self.brokers + 1):
            self.start_broker(number)
        for number, port in enumerate(self.ports, 1):
            wait_until(lambda port=port: serves_kafka(port), self._nodes[number], self._log(number), 240)  # type: ignore[misc]

    def launch(self) -> None:
        self.start_broker(1)

    def start_broker(self, number: int) -> None:
        with self._log(number).open("ab") as log:
            self._nodes[number] = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings(number)), heap=JVM),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._home(number),
            )  # fmt: skip

    def kill_broker(self, number: int) -> None:
        end(self._nodes.pop(number), signal.SIGKILL)

    def stop(self) -> None:
        nodes, self._nodes = self._nodes, {}
        for process in nodes.values():  # all at once: the last of a quorum waits for the others otherwise
            process.terminate()
        for process in nodes.values():
            end(process)

    def kill(self) -> None:
        while self._nodes:
            end(self._nodes.popitem()[1], signal.SIGKILL)

    def pids(self) -> list[int]:
        return [process.pid for process in self._nodes.values()]

    def _home(self, number: int) -> Path:
        made = self.directory / str(number)
        made.mkdir(exist_ok=True)
        return made

    def _log(self, number: int) -> Path:
        return self._home(number) / "output.log"

    def _settings(self, number: int) -> Path:
        port, control = self._ports[number - 1], self._ports[self.brokers + number - 1]
        voters = ",".join(f"{index}@{HERE}:{self._ports[self.brokers + index - 1]}" for index in range(1, self.brokers + 1))  # fmt: skip
        lines = f"""process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{HERE}:{port},CONTROLLER://{HERE}:{control}
advertised.listeners=PLAINTEXT://{HERE}:{port}
controller.listener.names=CONTROLLER
log.dirs={self._home(number)}/data
offsets.topic.replication.factor={self.brokers}
transaction.state.log.replication.factor={self.brokers}
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor={self.brokers}
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
{self.extra}"""
        file = self._home(number) / "server.properties"
        file.write_text(lines)
        return file

    def _format(self) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"]
        works = []
        for number in range(1, self.brokers + 1):
            with self._log(number).open("ab") as log:
                works.append(
                    subprocess.Popen(
                        self._java(*tool, str(self._settings(number))), stdout=log, stderr=log,
                        stdin=subprocess.DEVNULL, cwd=self._home(number),
                    )
                )  # fmt: skip
        for number, work in enumerate(works, 1):
            try:
                failed = work.wait(120)
            except BaseException:
                for each in works:
                    end(each, signal.SIGKILL)
                raise
            if failed:
                raise Unobtainable(f"format: {last_words(self._log(number))}")

    @staticmethod
    def _java(*arguments: str, heap: list[str] | None = None) -> list[str]:
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        return ["java", *(heap or quick), level, "-cp", class_path(), *arguments]


class KafkaSynced(Kafka):
    name = "kafka-fsync"
    synced = True
    title = f"Kafka {VERSION}, fsync"
    durability = "fsync before the ack (log.flush.interval.messages=1)"
    extra = SYNC


class ThreeKafkas(Kafka):
    name = "kafka-three"
    title = f"Kafka {VERSION}"
    durability = "page cache of two of three replicas"
    brokers = 3


class ThreeKafkasSynced(ThreeKafkas):
    name = "kafka-three-fsync"
    synced = True
    title = f"Kafka {VERSION}, fsync"
    durability = "fsync on two of three replicas (log.flush.interval.messages=1)"
    extra = SYNC
