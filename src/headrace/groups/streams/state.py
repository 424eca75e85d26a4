"""Machine: one streams group (KIP-1071), and how each fact changes it.

Invariant (R55): an active task is in the hands of at most one member, and no process has a task twice, in whatever roles:
its copies would share one directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from headrace.groups.assigned import AssignedGroup, MemberState
from headrace.groups.facts import ProgressAwaited, SessionExtended
from headrace.groups.streams import facts
from headrace.groups.streams.members import Role, StreamsMember, Task, TaskLists, Tasks, of_role
from headrace.groups.streams.topology import ConfiguredTopology, Subtopology, Topology, configure
from headrace.groups.topics import TopicIndex

FIRST_EPOCH = 1
"""Members that wait for the first assignment are at this epoch: 0 would tell them that they never joined."""


class Endpoint(NamedTuple):
    """One instance that can be asked, and the partitions whose state it has, by topic."""

    host: str
    port: int
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


class Endpoints(NamedTuple):
    epoch: int
    """Made from the content, so that it means the same to every coordinator."""
    table: tuple[Endpoint, ...]


class StreamsGroup(AssignedGroup[StreamsMember, Tasks]):
    __slots__ = (
        "_configured", "_endpoints", "assigned_wall_ms", "delayed_until_ms", "empty_since_wall_ms", "holders",
        "shutdown_by", "standby_replicas", "topology", "validated_epoch",
    )  # fmt: skip

    group_type = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.epoch = self.target_epoch = FIRST_EPOCH
        self.topology: Topology | None = None
        self.validated_epoch = -1
        self.standby_replicas = 0
        self.empty_since_wall_ms = -1
        self.assigned_wall_ms = 0
        self.delayed_until_ms: int | None = None
        self.shutdown_by: str | None = None
        self.holders: dict[tuple[str, int], frozenset[tuple[str, Role]]] = {}
        """Who has each task, by subtopology and partition: member ids and roles."""
        self._configured: tuple[TopicIndex, ConfiguredTopology, int] | None = None
        self._endpoints: tuple[TopicIndex, Endpoints] | None = None

    # --- questions -------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if all(self.is_reconciled(m) for m in self.members.values()) else "Reconciling"

    def is_reconciled(self, member: StreamsMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.target_epoch

    def topics_subscribed(self, index: TopicIndex) -> frozenset[str]:
        """The topics that its assignment depends on and that are there."""
        return index.resolve(self.topology.needed() if self.topology is not None else (), None)

    def topics_read(self) -> frozenset[str]:
        """Those it commits offsets of, while it has members."""
        return frozenset() if self.topology is None or not self.members else self.topology.read()

    def retention(self, index: TopicIndex | None) -> tuple[frozenset[str] | None, int | None]:
        """See ClassicGroup.retention."""
        if self.is_empty:
            return frozenset(), self.empty_since_wall_ms if self.empty_since_wall_ms >= 0 else None
        return self.topics_read(), None

    def configured(self, index: TopicIndex) -> ConfiguredTopology:
        """Its topology with these topics; found once for each view of the topics."""
        return self._looked_at(index)[1]

    def outlook(self, index: TopicIndex) -> tuple[int, int]:
        """The epoch of the topology if these topics suit it, else -1; and what they look like."""
        _, configured, fingerprint = self._looked_at(index)
        is_valid = self.topology is not None and configured.is_ready
        return self.topology.epoch if self.topology is not None and is_valid else -1, fingerprint

    def _looked_at(self, index: TopicIndex) -> tuple[TopicIndex, ConfiguredTopology, int]:
        if self._configured is None or self._configured[0] is not index:
            configured = configure(self.topology or Topology(-1, ()), index)
            self._configured = index, configured, index.fingerprint(self.topics_subscribed(index))
        return self._configured

    def is_free(self, member: StreamsMember, task: Task) -> bool:
        """Nobody else has it in a way that forbids the member to have it now."""
        for holder_id, role in self.holders.get(task[1:], ()):
            if holder_id == member.member_id:
                continue
            if role is task.role is Role.ACTIVE:
                return False
            if self.members[holder_id].profile.process_id == member.profile.process_id:
                return False
        return True

    def endpoints(self, index: TopicIndex) -> Endpoints:
        """Where the state of which partitions can be asked for (interactive queries)."""
        if self._endpoints is None or self._endpoints[0] is not index:
            self._endpoints = index, _endpoints(self, index)
        return self._endpoints[1]

    # --- facts -----------------------------------------------------------------------------------------------

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id)

    def _apply_epoch(self, fact: facts.StreamsEpochSet) -> None:
        self.epoch = fact.epoch
        self.fingerprint = fact.fingerprint
        self.validated_epoch = fact.validated_epoch
        self.standby_replicas = fact.standby_replicas
        self.empty_since_wall_ms = fact.empty_since_wall_ms

    def _apply_topology(self, fact: facts.TopologySet) -> None:
        self.topology = fact.topology
        self._configured = self._endpoints = None

    def _apply_member(self, fact: facts.StreamsMemberSet) -> None:
        self.members[fact.member_id] = self._member(fact.member_id)._replace(profile=fact.profile)
        self._endpoints = None

    def _apply_streams_targets(self, fact: facts.StreamsTargetsSet) -> None:
        self._apply_targets(fact)
        self.assigned_wall_ms = fact.at_wall_ms

    def _apply_current(self, fact: facts.StreamsCurrentSet) -> None:
        old = self._member(fact.member_id)
        self._release(old)
        new = old._replace(
            epoch=fact.epoch,
            previous_epoch=fact.previous_epoch,
            state=fact.state,
            assigned=fact.assigned,
            revoking=fact.revoking,
            since=fact.since,
        )
        self.members[fact.member_id] = new
        for task in new.held:
            self.holders[task[1:]] = self.holders.get(task[1:], frozenset()) | {(fact.member_id, task.role)}
        self._endpoints = None

    def _apply_left(self, fact: facts.StreamsMemberLeft) -> None:
        self.targets.pop(fact.member_id, None)
        member = self.members.pop(fact.member_id, None)
        if member is not None:
            self._release(member)
        if not self.members:
            self.shutdown_by = None
        self._endpoints = None

    def _apply_current_forgotten(self, fact: facts.StreamsCurrentForgotten) -> None:
        member = self.members.get(fact.member_id)
        if member is not None:
            self._release(member)
            self.members[fact.member_id] = StreamsMember(fact.member_id, member.profile)

    def _apply_delayed(self, fact: facts.AssignmentDelayed) -> None:
        self.delayed_until_ms = fact.until_ms

    def _apply_shutdown(self, fact: facts.ShutdownRequested) -> None:
        self.shutdown_by = self.shutdown_by or fact.member_id

    def _release(self, member: StreamsMember) -> None:
        for task in member.held:
            left = self.holders[task[1:]] - {(member.member_id, task.role)}
            if left:
                self.holders[task[1:]] = left
            else:
                del self.holders[task[1:]]

    # --- invariants ------------------------------------------------------------------------------------------

    def invariants(self) -> None:
        super().invariants()
        holders: dict[tuple[str, int], frozenset[tuple[str, Role]]] = {}
        for member in self.members.values():
            assert not member.assigned & member.revoking, "a task is both assigned and being revoked"
            assert (member.state is MemberState.UNREVOKED) == bool(member.revoking)
            assert member.epoch <= self.epoch and member.previous_epoch <= self.epoch
            active = {task for task in member.held if task.role is Role.ACTIVE}
            assert member.since.keys() == active, "an active task without the epoch it came with"
            for task in member.held:
                holders[task[1:]] = holders.get(task[1:], frozenset()) | {(member.member_id, task.role)}
        assert holders == self.holders, "the index of holders is wrong"
        _held_by_one(self.members, {member_id: m.held for member_id, m in self.members.items()})
        _held_by_one(self.members, self.targets)


def _held_by_one(members: Mapping[str, StreamsMember], tasks: Mapping[str, Tasks]) -> None:
    active: dict[tuple[str, int], str] = {}
    for member_id, held in tasks.items():
        for task in held:
            if task.role is Role.ACTIVE:
                other = active.setdefault(task[1:], member_id)
                assert other == member_id, f"R55: {task} is with {other} and {member_id}"


def _endpoints(group: StreamsGroup, index: TopicIndex) -> Endpoints:
    configured = group.configured(index)
    read = {sub.subtopology_id: sub for sub in configured.subtopologies} if configured.is_ready else {}
    table = []
    for _, member in sorted(group.members.items()):
        if member.profile.endpoint is not None:
            active = _partitions(read, index, of_role(member.assigned, Role.ACTIVE))
            standby = _partitions(read, index, of_role(member.assigned, Role.STANDBY))
            table.append(Endpoint(*member.profile.endpoint, active, standby))
    if not table:
        return Endpoints(0, ())
    digest = blake2b(repr(table).encode(), digest_size=4).digest()
    return Endpoints(int.from_bytes(digest, "big") & 0x7FFFFFFF, tuple(table))


def _partitions(
    read: Mapping[str, Subtopology], index: TopicIndex, lists: TaskLists
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found: dict[str, set[int]] = {}
    for subtopology, numbers in lists:
        for topic in read[subtopology].read() if subtopology in read else ():
            count = index.topics[topic].partition_count
            found.setdefault(topic, set()).update(number for number in numbers if number < count)
    return tuple((topic, tuple(sorted(numbers))) for topic, numbers in sorted(found.items()))


StreamsGroup.appliers = {
    facts.StreamsEpochSet: StreamsGroup._apply_epoch,
    facts.TopologySet: StreamsGroup._apply_topology,
    facts.StreamsMemberSet: StreamsGroup._apply_member,
    facts.StreamsTargetsSet: StreamsGroup._apply_streams_targets,
    facts.StreamsTargetLoaded: StreamsGroup._apply_target_loaded,
    facts.StreamsCurrentSet: StreamsGroup._apply_current,
    facts.StreamsCurrentForgotten: StreamsGroup._apply_current_forgotten,
    facts.StreamsMemberLeft: StreamsGroup._apply_left,
    ProgressAwaited: StreamsGroup._apply_nothing,
    facts.AssignmentDelayed: StreamsGroup._apply_delayed,
    facts.ShutdownRequested: StreamsGroup._apply_shutdown,
    SessionExtended: StreamsGroup._apply_nothing,
}
