"""What is done to a real cluster: kills, pauses beyond the lease, cut links, failing disks, a coordinator that goes away,
brokers that start without it or on a full disk, and configs that change under load.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from real_cluster import RealBroker, RealCluster, wait_for
from real_disk import fail_one_sync

LEASE_S = 6.0
CONFIGS: dict[str, tuple[str, ...]] = {
    "headrace.flush": ("commit", "interval", "os"),
    "min.insync.replicas": ("1", "2"),
    "compression.type": ("producer", "zstd", "lz4", "gzip", "uncompressed"),
    "retention.ms": ("3600000", "86400000", "-1"),
    "segment.bytes": ("1048576", "4194304", "1073741824"),
}
"""What may change while a topic is written, without taking anything from what was promised to its writers."""
FADING: dict[str, tuple[str, ...]] = {**CONFIGS, "retention.bytes": ("1048576", "2097152", "-1")}
"""For topics whose oldest messages may go."""
CRASHES = ("kill leader", "kill any", "start without etcd", "start on a full disk", "fsync failure")


class Tormentor:
    def __init__(
        self,
        cluster: RealCluster,
        topic: str,
        seed: int,
        changing: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    ) -> None:
        """`changing`: of these topics, these configs may change under load."""
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._topic = topic
        self._dice = random.Random(seed)
        self._admin = self._new_admin()
        self._changing = changing or {}
        self._lazy: set[str] = set()
        """Topics that are not synced before they are acknowledged, as they were set last."""
        self._faults = ["kill leader", "kill any", "pause", "rolling stop"]
        if self._changing:
            self._faults += ["config changed"] * 3
        if cluster.etcd is not None:
            self._faults += ["etcd killed", "etcd paused", "etcd away beyond the lease", "start without etcd"]
        if cluster.namespaces is not None:
            self._faults += ["isolated", "deaf", "cut off from etcd"]
        if all(broker.disk is not None for broker in cluster.brokers.values()):
            self._faults += [
                "power loss",
                "disk full",
                "fsync failure",
                "every disk full",
                "start on a full disk",
            ]

    def _new_admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self._cluster.bootstrap, "log_level": 0, "error_cb": lambda error: None}
        )

    def _controllers(self) -> dict[int, object]:
        """What each broker says who the controller is."""
        found: dict[int, object] = {}
        for broker in self._cluster.brokers.values():
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            try:
                found[broker.number] = admin.list_topics(timeout=5).controller_id
            except ck.KafkaException as problem:
                found[broker.number] = problem.args[0].name()
        return found

    def create_topic(self, partitions: int, min_isr: int = 2, **config: str) -> None:
        configs = {"min.insync.replicas": str(min_isr), **config}
        topic = NewTopic(self._topic, partitions, 3, config=configs)
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

    def set_config(self, topic: str, name: str, value: str, seconds: float = 60.0) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        deadline = time.monotonic() + seconds
        while True:
            try:
                for future in self._admin.incremental_alter_configs([wanted], request_timeout=10).values():
                    future.result(15)
                return
            except ck.KafkaException as problem:
                # librdkafka may wait for a controller for ever once brokers have come and gone (its issue 5511). If it is the
                # brokers who know of none, a new client does not get on either.
                self._admin = self._new_admin()
                print(f"{topic} {name}={value}: {problem}; controllers {self._controllers()}", flush=True)
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

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
        return broker, at

    def once(self, kind: str | None = None) -> str:
        """One fault, drawn if not named, from its beginning to its end; everything runs again afterwards."""
        kind = self._once(kind or self._draw())
        self.done[kind.partition(":")[0]] += 1
        return kind

    def _once(self, kind: str) -> str:
        brokers = list(self._cluster.brokers.values())
        victim = self._dice.choice(brokers)
        match kind:
            case "kill leader":
                victim, _ = self.kill_leader(self._dice.randrange(len(self.leaders()) or 1))
                time.sleep(self._dice.uniform(0.1, 3))
                victim.start()
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
                self._trouble_etcd(kind == "etcd killed", self._dice.uniform(0.5, 1.6 * LEASE_S))
            case "etcd away beyond the lease":
                self._trouble_etcd(self._dice.random() < 0.5, self._dice.uniform(1.3, 2.5) * LEASE_S)
            case "start without etcd" | "start on a full disk":
                self._start_into(kind, victim)
            case "config changed":
                topic = self._dice.choice(sorted(self._changing))
                name = self._dice.choice(sorted(self._changing[topic]))
                value = self._dice.choice(self._changing[topic][name])
                self.set_config(topic, name, value)
                if name == "headrace.flush":
                    (self._lazy.discard if value == "commit" else self._lazy.add)(topic)
                return f"{kind}: {topic} {name}={value}"
            case "every disk full":
                self._fill_all()
            case "power loss" | "disk full" | "fsync failure":
                self.trouble_disk(kind, victim)
            case _:
                self._cut(kind, victim.number)
        return kind

    def _draw(self) -> str:
        """A replica that crashes with what it had not synced no longer counts as complete (R29), and when it was the last one
        in sync, its partition waits for an administrator (R27): that is the trade of such a topic, and not what is examined
        here. So its replicas are in sync when a broker crashes, and all replicas when power is lost. A machine that is too
        busy for that gets a fault that needs no such care."""
        kind = self._dice.choice(self._faults)
        careful = set(self._changing) if kind == "power loss" else self._lazy if kind in CRASHES else set()
        try:
            for topic in sorted(careful):
                Tormentor(self._cluster, topic, 0).wait_whole(60)
        except AssertionError:
            return self._dice.choice(
                [other for other in self._faults if other not in (*CRASHES, "power loss")]
            )
        return kind

    def _trouble_etcd(self, is_killed: bool, seconds: float) -> None:
        etcd = self._cluster.etcd
        assert etcd is not None
        if is_killed:
            etcd.kill()
            time.sleep(seconds)
            etcd.start()
        else:
            etcd.pause()
            time.sleep(seconds)
            etcd.resume()

    def _start_into(self, kind: str, victim: RealBroker) -> None:
        """A broker that starts while something it needs is away waits for it, instead of exiting (F19)."""
        etcd, disk = self._cluster.etcd, victim.disk
        victim.kill()
        if kind == "start without etcd":
            assert etcd is not None
            etcd.kill()
            with _Aside(victim.start):
                time.sleep(self._dice.uniform(1, 2 * LEASE_S))
                etcd.start()
        else:
            assert disk is not None
            disk.fill()
            with _Aside(victim.start):
                time.sleep(self._dice.uniform(1, 2 * LEASE_S))
                disk.make_room()

    def _fill_all(self) -> None:
        disks = [broker.disk for broker in self._cluster.brokers.values() if broker.disk is not None]
        for disk in disks:
            disk.fill()
        time.sleep(self._dice.uniform(1, 1.6 * LEASE_S))
        self._dice.shuffle(disks)
        for disk in disks:
            disk.make_room()

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
            # a success although the shutdown overtook it. What is not synced is promised only while a replica in sync
            # keeps its power, so with another headrace.flush than commit the others have to be in sync (R12, `_draw`).
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
            spaces.mute_to_bridge(me, self._cluster.etcd.port)
        for other in others if kind != "cut off from etcd" else ():
            spaces.deafen(me, other)
            if kind == "isolated":
                spaces.deafen(other, me)
        time.sleep(self._dice.uniform(1, 1.6 * LEASE_S))
        spaces.heal()


class _Aside:
    """Something that happens in a thread of its own meanwhile; its failure is ours at the end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self._problem = problem

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem
