"""Codec: what the cluster knows about a queue: kept in the coordinator under `queues/<name>`, validated on the way in (X27)."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.broker.queueing import names
from headrace.queues.config import QueueConfig, config_from_values
from headrace.queues.elastic import Elastic

Name = Annotated[str, Meta(min_length=1, max_length=249)]


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A queue over its own topic, or a subscription: a queue over topics that others own too."""

    name: Name
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    """New with each creation, so that receipts of a queue that was deleted mean nothing to its successor."""
    topics: tuple[Name, ...]
    kind: Literal["queue", "subscription"] = "queue"
    config: dict[str, object] = {}
    """queues.config.QueueConfig, field by field."""
    filter: str = ""
    default_delay_ms: int = 0
    start: Literal["earliest", "latest"] = "earliest"
    since: dict[str, int] = {}
    """Of one that starts at the latest: how many partitions there were of each topic (by its id, in hex) when it was made.
    What came later holds nothing from before, so it is read from its beginning."""
    attributes: dict[str, str] = {}
    """As the SQS door was given them."""
    tags: dict[str, str] = {}
    elastic: Elastic | None = None
    """How its number of partitions follows its load; None: it does not."""
    active: int = 0
    """New messages are placed in so many of its partitions; 0: in all of them."""
    moving_from: int = 0
    """FIFO: so many were active before, and groups are still on their way (placement/migration.py)."""
    moved_ms: int = 0
    """When all groups were where they belong; 0: not yet. The change is over a deduplication window later."""
    era: int = 0
    """Grows when such a change begins and when it ends."""
    push: dict[str, object] = {}
    """Where a subscription is pushed to; empty for pull."""
    created_ms: int = 0
    changed_ms: int = 0

    def starts_at_end(self, topic_id: bytes, partition: int) -> bool:
        """Whether what a partition holds when the queue first meets it is none of the queue's business."""
        if self.start == "earliest":
            return False
        return not self.since or partition < self.since.get(topic_id.hex(), 0)

    @cached_property
    def queue_config(self) -> QueueConfig:
        return replace(config_from_values(self.config), queue_id=self.id)

    @cached_property
    def is_indexed(self) -> bool:
        """Whether its engine is told what is special about messages, and not just where the log ends."""
        return self.queue_config.indexed

    @cached_property
    def takes_as_sent(self) -> bool:
        """Whether all that the queue asks of a record is its key and the headers of ours, whatever else is in it."""
        is_own = self.name.startswith(names.DELAYS_PREFIX)
        return not (self.filter or self.default_delay_ms or is_own)


def with_config(spec: QueueSpec, config: QueueConfig) -> QueueSpec:
    values = asdict(config)
    del values["queue_id"]  # which the spec has already
    return msgspec.structs.replace(spec, config=values)


def encode_spec(spec: QueueSpec) -> bytes:
    return msgspec.json.encode(spec)


def decode_spec(raw: bytes) -> QueueSpec | None:
    """None for a value that makes no sense: it is left alone."""
    try:
        return msgspec.json.decode(raw, type=QueueSpec)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@lru_cache(maxsize=10_000)
def delay_spec(topic: str) -> QueueSpec:
    """What waits in a topic, as a queue. It is known to nobody but its driver."""
    spec = QueueSpec(name=names.DELAYS_PREFIX + topic, id="delays", topics=(topic,), kind="subscription")
    return with_config(spec, QueueConfig(delays=True, filtered=True))
