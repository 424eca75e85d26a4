"""Machine: a member of a streams group, its tasks and what it says of itself. Immutable: facts carry it, and the state keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.groups.assigned import MemberState


class Role(IntEnum):
    ACTIVE = 0
    STANDBY = 1
    WARMUP = 2


class Task(NamedTuple):
    role: Role
    subtopology: str
    partition: int


Tasks = frozenset[Task]

NOTHING: Tasks = frozenset()

TaskLists = tuple[tuple[str, tuple[int, ...]], ...]
"""By subtopology, in order, as on the wire."""


def of_role(tasks: Iterable[Task], role: Role) -> TaskLists:
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        if task.role is role:
            found.setdefault(task.subtopology, []).append(task.partition)
    return tuple((subtopology, tuple(partitions)) for subtopology, partitions in found.items())


def as_tasks(role: Role, lists: TaskLists) -> Iterator[Task]:
    return (Task(role, subtopology, partition) for subtopology, numbers in lists for partition in numbers)


class MemberProfile(NamedTuple):
    """What a member says of itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Of the instance of the application, which has a member for each of its threads."""
    endpoint: tuple[str, int] | None = None
    """Where this instance answers interactive queries."""
    tags: tuple[tuple[str, str], ...] = ()


class StreamsMember(NamedTuple):
    member_id: str
    profile: MemberProfile = MemberProfile()
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Tasks = NOTHING
    revoking: Tasks = NOTHING
    since: Mapping[Task, int] = {}

    @property
    def held(self) -> Tasks:
        return self.assigned | self.revoking
