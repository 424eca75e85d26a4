"""Driver: the core of one broker: its replicas, the metadata they follow, and the disk under them.

It knows nothing of coordinators and doors: those are services on top of it (services.py), each given what it uses.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.disk_room import AUTOMATIC
from headrace.broker.flusher import Flusher
from headrace.broker.introductions import Introductions
from headrace.broker.liveness import Liveness
from headrace.broker.metadata import Metadata
from headrace.broker.partition import Partition
from headrace.broker.replicas import Replicas
from headrace.broker.replicator import Replicator
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.net.tls import PeerTls

DELETE_RECORDS_MS = 30_000


class BrokerOptions(NamedTuple):
    log_dir: str
    cluster_key: bytes
    """What brokers of the cluster have and nobody else (A27, A49)."""
    ephemeral: bool = False
    repair: bool = False
    disk_reserve_bytes: int = AUTOMATIC
    peer_tls: PeerTls | None = None
    """Connections to other brokers are encrypted with this."""


class Broker:
    """Also the `ShardHost` of every coordinator on it."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        options: BrokerOptions,
        *,
        lease_held: Callable[[], bool],
        on_disk_failed: Callable[[], None],
    ) -> None:
        self.runtime = runtime
        self.metadata = metadata
        self.image = metadata.image
        self.node_id = metadata.image.broker_id
        self.log_dir = options.log_dir
        self._is_ephemeral = options.ephemeral
        self._on_disk_failed = on_disk_failed
        self.introductions = Introductions(runtime, metadata, options.cluster_key, options.peer_tls)
        self.liveness = Liveness(runtime, metadata)
        self.flusher = Flusher(runtime, self._disk_failed)
        self.replicas = Replicas(
            runtime,
            metadata,
            self.flusher,
            options.log_dir,
            Replicator(runtime, self.image, self.introductions, self.liveness),
            lease_held,
            ephemeral=options.ephemeral,
            repair=options.repair,
            disk_reserve_bytes=options.disk_reserve_bytes,
        )
        self.partitions = self.replicas.partitions

    def _disk_failed(self, problem: OSError) -> None:
        """S7: every log in this directory is out of service until a restart scans it."""
        for partition in list(self.partitions.values()):
            partition.mark_failed()
        self._on_disk_failed()

    # -- lookups -----------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        cluster = self.image.cluster
        return "" if cluster is None else cluster.cluster_id

    def find_partition(self, topic: str, number: int) -> tuple[Partition | None, ErrorKind]:
        """The replica here, or what a client is told instead."""
        partition = self.partitions.get((topic, number))
        if partition is not None:
            return partition, ErrorKind.NONE
        if self.image.partition(topic, number) is None:
            return None, ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        if self.image.view(topic) is not None:
            return None, ErrorKind.INVALID_TOPIC_EXCEPTION
        if (topic, number) in self.replicas.offline:
            return None, ErrorKind.KAFKA_STORAGE_ERROR
        return None, ErrorKind.NOT_LEADER_OR_FOLLOWER

    def find_readable(self, topic: str, number: int) -> tuple[Partition | None, ErrorKind]:
        """The replica here whose offsets a topic or a view has."""
        partition = self.partitions.get((topic, number))
        if partition is not None:
            return partition, ErrorKind.NONE
        view = self.image.view(topic)
        return self.find_partition(topic if view is None else view.source, number)

    def near_replica(self, partition: Partition, rack: str) -> int:
        """KIP-392: an in-sync replica in the consumer's own rack, when the leader is not; else -1."""
        me = self.image.broker(self.node_id)
        if me is None or me.rack == rack:
            return -1
        for member in partition.isr:
            node = self.image.broker(member)
            if node is not None and node.live and node.rack == rack:
                return member
        return -1

    def new_uuid(self) -> str:
        return str(uuid.UUID(bytes=self.runtime.random_bytes(16), version=4))

    @property
    def shown_log_dir(self) -> str:
        """What administrators are told: the directory of a broker that keeps all in memory may be another one's."""
        return "memory:" if self._is_ephemeral else self.log_dir

    def disk_space(self) -> tuple[int, int]:
        """Total is unknown behind the file-system port; what is free is what people ask for."""
        if self._is_ephemeral:
            return -1, -1
        return -1, self.runtime.fs.free_bytes(self.log_dir)

    # -- maintenance -------------------------------------------------------------------------------------------

    async def delete_records(
        self, partition: Partition, offset: int, timeout_ms: int = DELETE_RECORDS_MS
    ) -> int:
        """Forget everything below `offset` (-1: all that is committed), here and on every live replica; the new first
        offset. REQUEST_TIMED_OUT: it is gone here, and will be elsewhere."""
        if not partition.is_leader:
            raise HeadraceError(ErrorKind.NOT_LEADER_OR_FOLLOWER)
        await partition.settle_own_writes()
        wanted = partition.high_watermark if offset == -1 else offset
        if wanted < 0 or wanted > partition.high_watermark:
            raise HeadraceError(ErrorKind.OFFSET_OUT_OF_RANGE, f"{wanted} is above the high watermark")
        start = partition.delete_records(wanted)
        if isinstance(start, Rejected):
            raise HeadraceError(start.kind, start.detail)

        def live_followers() -> list[int]:
            return [
                node.id
                for node in self.image.live_brokers()
                if node.id in partition.replicas and node.id != self.node_id
            ]

        if not await partition.low_watermark.reach(start, live_followers, timeout_ms / 1000):
            raise HeadraceError(ErrorKind.REQUEST_TIMED_OUT, "some replicas have not deleted them yet")
        return start
