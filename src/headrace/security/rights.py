"""Kernel: rights in Kafka's words (A36), and how a handler or a route says which of them it needs (A39).

`RIGHTS = needs(read(GROUP, "group_id"), read(TOPIC, "topics[].name"))` is a table value, not code: the operation, the kind of resource,
and the place in the request where its name stands. The check, the matrix of tests and the page of the manual are made from it, so
who adds an API says what it needs and opens nothing else.

Places in a Kafka request are its fields (`topics[].name`: of each entry; a field that is null or empty names nothing, and then
nothing is needed). Places in an HTTP request are `{queue}` of its path and `body.topic` of its body, and `topics of {queue}`: a queue
over topics T is Group Q over Topics T; and `topic of {subject}`, whose schemas they are; and `body.topics[] or body.name`, where the second counts
when there is nothing at the first. The cluster has no name and no place.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Resource(IntEnum):
    """By Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """By Kafka's numbers, which are also the bits of authorised operations (A47)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


LEGAL: dict[Resource, frozenset[Operation]] = {
    Resource.TOPIC: frozenset((
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    )),
    Resource.GROUP: frozenset((
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    )),
    Resource.CLUSTER: frozenset((
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    )),
    Resource.TRANSACTIONAL_ID: frozenset((Operation.WRITE, Operation.DESCRIBE)),
    Resource.DELEGATION_TOKEN: frozenset((Operation.DESCRIBE,)),
    Resource.USER: frozenset((Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)),
}  # fmt: skip
"""Which operations a kind of resource has."""

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    Resource.TOPIC,
    Resource.GROUP,
    Resource.CLUSTER,
    Resource.TRANSACTIONAL_ID,
)


class Only(NamedTuple):
    """A right that is needed only where a field beside the name has this value."""

    field: str
    value: int | None


class Right(NamedTuple):
    operation: Operation
    resource: Resource
    places: tuple[str, ...] = ()
    only: Only | None = None
    until: str = ""
    """The name ends before this; for names that are part of a longer key."""

    def when(self, field: str, value: int | None, *, until: str = "") -> Right:
        return self._replace(only=Only(field, value), until=until)

    def __str__(self) -> str:
        words = self.operation.name.replace("_", " ").title().replace(" ", "")
        return f"{words} on {self.resource.name.lower().replace('_', ' ')}"


class Rights(NamedTuple):
    """What a request needs: of each entry of `needs` at least one."""

    needs: tuple[tuple[Right, ...], ...] = ()
    shows: tuple[Right, ...] = ()
    """A list is not refused: it leaves out whatever the caller has not this right to (A44)."""
    makes: tuple[Right, ...] = ()
    """One of these, where the request names something that is not there and is made by that (auto-creation)."""
    before_login: bool = False
    """Answered to whoever has not said yet who they are."""
    brokers_only: bool = False
    """Only brokers of the cluster, which prove themselves in every mode (A1), are heard at all."""
    judged_inside: bool = False
    """The handler finds out itself who asks, and what for: SQS names its actions in the request, and has its own words for no."""

    def showing(self, *rights: Right) -> Rights:
        return self._replace(shows=rights)

    def making(self, *rights: Right) -> Rights:
        return self._replace(makes=rights)


def needs(*rights: Right | tuple[Right, ...]) -> Rights:
    """All of these; `either(…)` is one of them."""
    return Rights(tuple((right,) if isinstance(right, Right) else right for right in rights))


def either(*rights: Right) -> tuple[Right, ...]:
    return rights


OWN = Rights()
"""Nothing beyond being somebody."""
BEFORE_LOGIN = Rights(before_login=True)
BROKERS = Rights(brokers_only=True)
JUDGED_INSIDE = Rights(judged_inside=True)


def read(resource: Resource, *places: str) -> Right:
    return Right(Operation.READ, resource, places)


def write(resource: Resource, *places: str) -> Right:
    return Right(Operation.WRITE, resource, places)


def create(resource: Resource, *places: str) -> Right:
    return Right(Operation.CREATE, resource, places)


def delete(resource: Resource, *places: str) -> Right:
    return Right(Operation.DELETE, resource, places)


def alter(resource: Resource, *places: str) -> Right:
    return Right(Operation.ALTER, resource, places)


def describe(resource: Resource, *places: str) -> Right:
    return Right(Operation.DESCRIBE, resource, places)


def describe_configs(resource: Resource, *places: str) -> Right:
    return Right(Operation.DESCRIBE_CONFIGS, resource, places)


def alter_configs(resource: Resource, *places: str) -> Right:
    return Right(Operation.ALTER_CONFIGS, resource, places)


def idempotent_write() -> Right:
    return Right(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER)
