"""Codec: the values in the coordinator, as JSON, validated on the way in like client input (X27).

Invariant: a decoded value is internally consistent (ISR and ELR are disjoint subsets of the replicas, the leader is in
the ISR, ids are unique), so nothing downstream has to check again.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from headrace.cluster.views import spec_of

NO_LEADER = -1
MAX_REPLICAS = 32
MAX_EPOCH = 2**31 - 1
DELETED = "deleted"
"""The space of the notes of deleted topics."""

BrokerId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
LeaderId = Annotated[int, Meta(ge=NO_LEADER, le=2**31 - 1)]
Epoch = Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
LastEpoch = Annotated[int, Meta(ge=-1, le=MAX_EPOCH)]
Revision = Annotated[int, Meta(ge=0, le=2**63 - 1)]
WallMs = Annotated[int, Meta(ge=0, le=2**53)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Host = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"\A[A-Za-z0-9._:%\[\]-]+\Z")]
ShortText = Annotated[str, Meta(max_length=255)]
ConfigName = Annotated[str, Meta(min_length=1, max_length=255)]
ConfigValue = Annotated[str, Meta(max_length=65_536)]
TopicIdHex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Replicas = Annotated[tuple[BrokerId, ...], Meta(max_length=MAX_REPLICAS)]
ConfigMap = Annotated[dict[ConfigName, ConfigValue], Meta(max_length=1000)]


class InvalidState(ValueError):
    """A coordinator value that is not what its key promises."""


class ClusterState(msgspec.Struct, frozen=True):
    cluster_id: Annotated[str, Meta(min_length=1, max_length=64)]
    created_ms: WallMs


class Features(msgspec.Struct, frozen=True):
    levels: Annotated[dict[ShortText, Annotated[int, Meta(ge=0, le=32767)]], Meta(max_length=100)]


class ControllerState(msgspec.Struct, frozen=True):
    broker_id: BrokerId
    broker_epoch: Revision


class BrokerRegistration(msgspec.Struct, frozen=True):
    """A broker as it introduces itself. Its epoch is the mod revision of the key and is not repeated here."""

    host: Host
    port: Port
    http_host: Host
    http_port: Port
    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]
    rack: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    version: ShortText = ""
    started_ms: WallMs = 0


class Life(msgspec.Struct, frozen=True):
    """Left behind by each registration in the same transaction: mod revision of the key = that life's broker epoch."""

    incarnation: Annotated[str, Meta(min_length=1, max_length=64)]


class FenceReason(Enum):
    STARTING = "starting"
    SUSPECTED = "suspected"
    STOPPING = "stopping"


class Loss(IntEnum):
    """What a broker's logs may have lost since it last was in sync (R29). Ordered: a higher one includes the lower."""

    NOTHING = 0
    """The same process: fenced on suspicion, never died."""
    MEMORY = 1
    """A new process after a clean stop or with every acknowledged byte synced: only memory topics are empty."""
    UNSYNCED = 2
    """A crash: topics that are not synced before the ack may have lost their tail."""
    EVERYTHING = 3
    """A crash of a broker that does not assert that it syncs before it answers."""


class Fence(msgspec.Struct, frozen=True):
    """`loss` adds up over lives until the controller has acted on it, so that a clean stop can't hide a crash."""

    reason: FenceReason
    broker_epoch: Revision
    loss: Loss = Loss.NOTHING


class TopicState(msgspec.Struct, frozen=True):
    id: TopicIdHex
    partitions: Annotated[int, Meta(ge=0, le=1_000_000)]
    """0 for a view, which has those of its source."""
    configs: ConfigMap
    created_ms: WallMs
    creating: bool = False
    """True while a large topic's partitions are still being written; nobody but the creator looks at it."""
    journal_of: Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z")] = ""
    """Of a queue journal: the id of the topic whose queues it keeps. Empty for any other topic, and for a journal from
    before there were ids in it: that one belongs to the topic that is there, until upkeep has said so."""

    def __post_init__(self) -> None:
        if not any(bytes.fromhex(self.id)):
            raise ValueError("a topic id is never zero")
        if (self.partitions == 0) != (spec_of(self.configs) is not None):
            raise ValueError("a topic has partitions, and a view has none of its own")

    @property
    def topic_id(self) -> bytes:
        return bytes.fromhex(self.id)


class DeletedTopic(msgspec.Struct, frozen=True):
    """Under `deleted/<topic id>`, written by the deletion: a broker that was away then may remove what it finds of the topic.
    Without it a directory that nobody claims is kept (S12)."""

    name: ShortText
    deleted_ms: WallMs
    last_epoch: LastEpoch = -1
    """The highest leader epoch that any of its partitions has had; not known of those from before it was kept."""


class PartitionState(msgspec.Struct, frozen=True):
    """P in the correctness rules: all that is agreed about one partition, replaced as a whole by compare-and-swap."""

    replicas: Replicas
    """In order of preference, the ones being added and removed included."""
    leader: LeaderId
    leader_epoch: Epoch
    partition_epoch: Epoch
    isr: Replicas
    elr: Replicas = ()
    """Not in sync, but holding everything committed because nothing was committed since they left (R28, KIP-966)."""
    adding: Replicas = ()
    removing: Replicas = ()
    last_leader: LeaderId = NO_LEADER
    """Who led last while there is no leader: the best guess for an unclean election."""
    unclean_epoch: LastEpoch = -1
    """The leader epoch of the last unclean election: what followers may then truncate is no breach (R24, R27)."""

    def __post_init__(self) -> None:
        replicas = set(self.replicas)
        if not replicas or len(replicas) != len(self.replicas):
            raise ValueError("replicas must be distinct and not empty")
        for name in ("isr", "elr", "adding", "removing"):
            members = getattr(self, name)
            if len(set(members)) != len(members) or not replicas.issuperset(members):
                raise ValueError(f"{name} must be distinct members of the replicas")
        if not set(self.isr).isdisjoint(self.elr):
            raise ValueError("isr and elr must be disjoint")
        if not set(self.adding).isdisjoint(self.removing):
            raise ValueError("adding and removing must be disjoint")
        if self.leader != NO_LEADER and self.leader not in self.isr:
            raise ValueError("the leader must be in the isr")

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment that is under way is done."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class BrokerConfigs(msgspec.Struct, frozen=True):
    configs: ConfigMap


class NextProducerId(msgspec.Struct, frozen=True):
    next_producer_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]


State = TypeVar("State", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder(order="deterministic")
_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[msgspec.Struct]] = {}


def encode(state: msgspec.Struct) -> bytes:
    """Deterministic, so that a value can be compared as bytes."""
    return _encoder.encode(state)


def decode(kind: type[State], value: bytes) -> State:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(value)  # type: ignore[return-value]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidState(f"not a {kind.__name__}: {error}") from error
