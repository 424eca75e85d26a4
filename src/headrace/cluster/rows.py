"""Machine: what the image is made of: brokers, topics, the controller, as this broker knows them now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.cluster.configs import TopicConfig
from headrace.cluster.state import BrokerRegistration, Fence, PartitionState, TopicState
from headrace.cluster.views import ViewSpec, spec_of
from headrace.core.ids import is_internal


class BrokerNode(NamedTuple):
    id: int
    epoch: int
    registration: BrokerRegistration
    fence: Fence | None = None

    @property
    def live(self) -> bool:
        """May lead and join an ISR."""
        return self.fence is None

    @property
    def rack(self) -> str | None:
        return self.registration.rack


class ElectedController(NamedTuple):
    broker_id: int
    epoch: int
    """Create revision of the controller key: what a controller's transactions compare (R1)."""


class Namesake(NamedTuple):
    """A deleted topic whose name may be used again."""

    topic_id: bytes
    deleted_ms: int
    """Wall clock of the broker that did it."""
    last_epoch: int
    """The highest leader epoch that any topic of the name has had."""
    revision: int


class Topic:
    """A topic as it is now. `state` and `config` are replaced on change; hold on to them, not to this, across awaits."""

    __slots__ = ("config", "id", "internal", "name", "partitions", "state", "view")

    def __init__(self, name: str, state: TopicState, config: TopicConfig) -> None:
        self.name = name
        self.id = state.topic_id
        self.internal = is_internal(name)
        self.state = state
        self.config = config
        self.partitions: list[PartitionState | None] = [None] * state.partitions
        """By number; None for one whose key has not arrived yet. A view has the very list of its source."""
        self.view: ViewSpec | None = spec_of(state.configs)

    @property
    def configs(self) -> Mapping[str, str]:
        return self.state.configs
