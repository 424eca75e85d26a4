"""Headrace itself, from this tree, as installed: one broker, one that syncs at intervals, two behind one queue door, three with etcd."""

from __future__ import annotations

import os
from pathlib import Path

from real_cluster import RealCluster
from single_node import COMPILED

from headrace.core.compiled import how_it_runs
from headrace.testing.broker_process import BrokerDied, BrokerProcess
from headrace.testing.etcd_server import etcd_binary, free_ports
from peers.kafka_doors import KafkaPeer
from peers.servers import Unobtainable, command_line, descendants


class Headrace(KafkaPeer):
    name = "headrace"
    synced = True
    title = "Headrace"
    durability = "fsync before the ack (the default)"
    settings: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        environment = {**COMPILED, **self.settings}
        self._broker = BrokerProcess(self.directory / "data", environment=environment, start_seconds=240)
        self._is_up = False

    def obtain(self) -> None:
        """It is here."""

    def version(self) -> str:
        from headrace import __version__

        return f"{__version__} ({how_it_runs()})"

    @property
    def ports(self) -> list[int]:
        return [self._broker.kafka_port]

    @property
    def http_ports(self) -> list[int]:
        return [self._broker.http_port]

    def start(self) -> None:
        if not self._broker.kafka_port:
            self._broker.kafka_port, self._broker.http_port = free_ports(2)
        try:
            self._broker.start()
        except BrokerDied as died:
            raise Unobtainable(str(died)[-300:]) from died
        self._is_up = True

    launch = start  # it says itself when it is ready, and the port answers no earlier

    def stop(self) -> None:
        if self._is_up:
            self._is_up = False
            self._broker.stop(120)

    def kill(self) -> None:
        if self._is_up:
            self._is_up = False
            self._broker.kill()

    def pids(self) -> list[int]:
        return [self._broker.pid] if self._is_up else []


class HeadraceInterval(Headrace):
    name = "headrace-interval"
    synced = False
    title = "Headrace, flush=interval"
    durability = "page cache; synced every second (flush=interval)"
    settings = {"HEADRACE_FLUSH": "interval"}  # noqa: RUF012


class HeadraceCluster(KafkaPeer):
    """Several brokers on this host, each a process."""

    size = 3
    coordinator = "etcd"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._cluster = RealCluster(self.directory, size=self.size, coordinator=self.coordinator, settings={**COMPILED, "HEADRACE_LOG_LEVEL": "warning", "HEADRACE_DEFAULT_REPLICATION_FACTOR": "1"})  # fmt: skip

    def obtain(self) -> None:
        if self.coordinator == "etcd" and etcd_binary() is None:
            raise Unobtainable("there is no etcd here (Debian: etcd-server)")

    @property
    def ports(self) -> list[int]:
        return [broker.kafka_port for broker in self._cluster.brokers.values()]

    @property
    def http_ports(self) -> list[int]:
        return [broker.http_port for broker in self._cluster.brokers.values()]

    def start(self) -> None:
        try:
            self._cluster.start()
        except (BrokerDied, TimeoutError) as died:
            raise Unobtainable(str(died)[-300:]) from died

    launch = start

    def start_broker(self, number: int) -> None:
        self._cluster.brokers[number].start()

    def kill_broker(self, number: int) -> None:
        self._cluster.brokers[number].kill()

    def stop(self) -> None:
        self._cluster.stop()

    kill = stop

    def pids(self) -> list[int]:
        """Of the brokers; the coordinator is apart, because others have theirs inside."""
        return [broker.pid for broker in self._cluster.brokers.values() if broker.is_up]

    def coordinator_pids(self) -> list[int]:
        ours = str(self.directory).encode()
        return [
            pid for pid in descendants(os.getpid()) if b"etcd" in (line := command_line(pid)) and ours in line
        ]


class ThreeHeadraces(HeadraceCluster):
    name = "headrace-three"
    synced = True
    title = "Headrace"
    durability = "fsync on two of three replicas (the default)"


class TwoHeadraces(HeadraceCluster):
    name = "headrace-two"
    synced = True
    title = "Headrace, two brokers"
    durability = "fsync before the ack (the default)"
    size = 2
    coordinator = "sqlite"
