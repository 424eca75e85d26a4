"""Door: what a handler is given. Handlers translate, ask one use-case, translate back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.pacing import Pace
from headrace.broker.services import Services
from headrace.kafka.session import Session

Request_co = TypeVar("Request_co", covariant=True)


class OfferedApi(NamedTuple):
    key: int
    lowest: int
    highest: int


class Call(NamedTuple, Generic[Request_co]):
    services: Services
    broker: Broker
    """The core of them: replicas, metadata, the disk."""
    request: Request_co
    version: int
    client_id: str
    client_host: str
    connection_id: int
    session: Session
    apis: Sequence[OfferedApi]

    def pace(self) -> Pace:
        """For work on lists: `async for entry in pace.over(entries)`, one pace for all lists of a request (A3)."""
        return Pace(self.broker.runtime.clock)
