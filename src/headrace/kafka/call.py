"""Door: what a handler is given. Handlers translate, ask one use-case, translate back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.broker.broker import Broker
from headrace.broker.pacing import Pace
from headrace.broker.services import Services
from headrace.kafka.session import Session


class OfferedApi(NamedTuple):
    key: int
    lowest: int
    highest: int


class Call(NamedTuple):
    services: Services
    broker: Broker
    """The core of them: replicas, metadata, the disk."""
    request: Any
    version: int
    client_id: str
    client_host: str
    connection_id: int
    session: Session
    apis: Sequence[OfferedApi]

    def pace(self) -> Pace:
        """For work on lists: `async for entry in pace.over(entries)`, one pace for all lists of a request (A3)."""
        return Pace(self.broker.runtime.clock)
