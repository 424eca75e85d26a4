"""Machine: the settings of the transaction coordinator, under the names of Kafka's where it has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    max_timeout_ms: int = 15 * 60 * 1000
    """transaction.max.timeout.ms: the longest timeout a producer may ask for."""

    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    """transactional.id.expiration.ms: an id nobody used for so long is forgotten."""

    sweep_interval_ms: int = 60 * 60 * 1000
    """How often idle ids are looked for."""

    offsets_topic: str = "__consumer_offsets"
    offsets_partitions: int = 50
    """Where AddOffsetsToTxn finds the partition of a group."""

    connection_fencing: bool = True
    """R47: of two connections that speak for one old producer only the newer is heard. Off: as Kafka does it."""

    max_transactional_ids: int = 100_000
    """X31: ids come from clients, so there is a bound for those of one shard."""

    max_partitions: int = 20_000
    """Of one transaction: all of them are journaled with each one that is added."""
