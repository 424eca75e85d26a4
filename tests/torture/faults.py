"""What is done to a real cluster: kills, pauses beyond the lease, cut links, failing disks, a coordinator that goes away."""

from __future__ import annotations

import random
import time
from collections import Counter

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from real_cluster import RealBroker, RealCluster, wait_for
from real_disk import fail_one_sync

LEASE_S = 6.0


class Tormentor:
    def __init__(self, cluster: RealCluster, topic: str, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._topic = topic
        self._dice = random.Random(seed)
        self._admin = AdminClient(
            {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "error_cb": lambda error: None}
        )
        self._faults = ["kill leader", "kill any", "pause", "rolling stop"]
        if cluster.etcd is not None:
            self._faults += ["etcd killed", "etcd paused"]
        if cluster.namespaces is not None:
            self._faults += ["isolated", "deaf", "cut off from etcd"]
        if all(broker.disk is not None for broker in cluster.brokers.values()):
            self._faults += ["power loss", "disk full", "fsync failure"]

    def create_topic(self, partitions: int, min_isr: int = 2) -> None:
        topic = NewTopic(self._topic, partitions, 3, config={"min.insync.replicas": str(min_isr)})
        for future in self._admin.create_topics([topic]).values():
            future.result(30)

    def leaders(self) -> dict[int, int]:
        try:
            metadata = self._admin.list_topics(self._topic, timeout=5)
        except ck.KafkaException:
            return {}
        return {row.id: row.leader for row in metadata.topics[self._topic].partitions.values()}

    def is_whole(self) -> bool:
        try:
            topics = self._admin.list_topics(self._topic, timeout=5).topics
        except ck.KafkaException:
            return False
        rows = topics[self._topic].partitions.values()
        return bool(rows) and all(len(row.isrs) == len(row.replicas) and row.leader > 0 for row in rows)

    def wait_whole(self, seconds: float = 60.0) -> None:
        wait_for("every replica in sync", self.is_whole, seconds)

    def kill_leader(self, partition: int = 0) -> tuple[RealBroker, float]:
        """The broker that led the partition, and the moment it died."""
        leaders: dict[int, int] = {}

        def known() -> bool:
            leaders.update(self.leaders())
            return leaders.get(partition, -1) in self._cluster.brokers

        wait_for("a leader", known)
        broker = self._cluster.brokers[leaders[partition]]
        at = time.monotonic()
        broker.kill()
        self.done["kill leader"] += 1
        return broker, at

    def once(self) -> str:
        """One drawn fault, from its beginning to its end; everything runs again afterwards."""
        kind = self._dice.choice(self._faults)
        brokers = list(self._cluster.brokers.values())
        victim = self._dice.choice(brokers)
        match kind:
            case "kill leader":
                victim, _ = self.kill_leader(self._dice.randrange(len(self.leaders()) or 1))
                time.sleep(self._dice.uniform(0.1, 3))
                victim.start()
                return kind
            case "kill any":
                victim.kill()
                time.sleep(self._dice.uniform(0.1, LEASE_S + 3))
                victim.start()
            case "rolling stop":
                victim.stop()
                victim.start()
            case "pause":
                victim.pause()
                time.sleep(self._dice.uniform(1, 1.6 * LEASE_S))
                victim.resume()
            case "etcd killed" | "etcd paused":
                self._trouble_etcd(kind)
            case "power loss" | "disk full" | "fsync failure":
                self.trouble_disk(kind, victim)
            case _:
                self._cut(kind, victim.number)
        self.done[kind] += 1
        return kind

    def _trouble_etcd(self, kind: str) -> None:
        etcd = self._cluster.etcd
        assert etcd is not None
        if kind == "etcd killed":
            etcd.kill()
            time.sleep(self._dice.uniform(0.5, 1.6 * LEASE_S))
            etcd.start()
        else:
            etcd.pause()
            time.sleep(self._dice.uniform(0.5, 1.6 * LEASE_S))
            etcd.resume()

    def trouble_disk(self, kind: str, victim: RealBroker) -> None:
        disk = victim.disk
        assert disk is not None
        if kind == "disk full":
            disk.fill()
            time.sleep(self._dice.uniform(2, 1.6 * LEASE_S))
            disk.make_room()
            return
        if kind == "power loss":
            # Power goes from everything at once: a broker that lives on could acknowledge a sync which ext4 calls
            # a success although the shutdown overtook it.
            victim.pause()
            disk.lose_power()
            victim.kill()
            disk.come_back()
        else:
            fail_one_sync(victim.pid, self._dice.uniform(1, 3))
            # Out of service until somebody restarts it (S7); the rest of the cluster has to do without it meanwhile.
            time.sleep(self._dice.uniform(0.5, LEASE_S))
            victim.kill()
        victim.start()

    def _cut(self, kind: str, number: int) -> None:
        spaces = self._cluster.namespaces
        assert spaces is not None
        me = f"n{number}"
        others = [f"n{other}" for other in self._cluster.brokers if other != number]
        if kind == "cut off from etcd":
            assert self._cluster.etcd is not None
            spaces.deafen_to_bridge(me, self._cluster.etcd.port)
        for other in others if kind != "cut off from etcd" else ():
            spaces.deafen(me, other)
            if kind == "isolated":
                spaces.deafen(other, me)
        time.sleep(self._dice.uniform(1, 1.6 * LEASE_S))
        spaces.heal()
