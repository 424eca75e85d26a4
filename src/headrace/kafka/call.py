"""Door: what a handler is given. Handlers translate, ask one use-case, translate back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.pacing import Pace
from headrace.kafka.session import Session

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


class Call(NamedTuple):
    broker: Broker
    request: Any
    version: int
    client_id: str
    client_host: str
    connection_id: int
    session: Session

    def pace(self) -> Pace:
        """For work on lists: `async for entry in pace.over(entries)`, one pace for all lists of a request (A3)."""
        return Pace(self.broker.runtime.clock)
