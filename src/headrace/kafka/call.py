"""Door: what a handler is given. Handlers translate, ask one use-case, translate back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.pacing import Pace
from headrace.broker.services import Services
from headrace.kafka.operations import ON_CLUSTER, Legal, operations
from headrace.kafka.session import Session
from headrace.security.desk import Security
from headrace.security.rights import CLUSTER, Operation, Resource

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
    security: Security

    def may(self, operation: Operation, resource: Resource, name: str = "") -> bool:
        """Whether the caller may. Without a note that it may not: for what is left out of an answer."""
        access = self.session.access
        return access is None or access.may(operation, resource, name) or not self.security.image.enforces

    def sees(self, resource: Resource, name: str) -> bool:
        access = self.session.access
        return access is None or access.sees(resource, name)

    def refuses(self, operation: Operation, resource: Resource, name: str) -> bool:
        access = self.session.access
        return access is not None and access.refuses(operation, resource, name)

    def cluster_bits(self, asked: bool) -> int:
        """Of the cluster: nothing for who may not describe it, as in Kafka."""
        if asked and not self.may(Operation.DESCRIBE, CLUSTER):
            return 0
        return self.bits(asked, ON_CLUSTER, CLUSTER)

    def bits(self, asked: bool, legal: Legal, resource: Resource, name: str = "") -> int:
        """What the caller may do with it, where a request wants to know (A47)."""
        return operations(asked, legal, self.session.access, resource, name)

    def pace(self) -> Pace:
        """For work on lists: `async for entry in pace.over(entries)`, one pace for all lists of a request (A3)."""
        return Pace(self.broker.runtime.clock)
