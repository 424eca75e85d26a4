"""Door: what a handler is given. Handlers translate, ask one use-case, translate back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
