"""Machine: StreamsGroupHeartbeat: join with a topology, keep alive, reconcile, leave (KIP-1071)."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.errors import ErrorKind
from headrace.core.plan import Fact, Plan, Rejected
from headrace.groups.assigned import JOIN_EPOCH, LEAVE_EPOCH
from headrace.groups.commands import GroupPlan
from headrace.groups.draft import joined_plans
from headrace.groups.facts import GroupDeleted, SessionExtended
from headrace.groups.fields import fits
from headrace.groups.state import ClassicGroup
from headrace.groups.streams import topology as topologies
from headrace.groups.streams.commands import StreamsGroupHeartbeat, StreamsHeartbeatResult, TasksByRole
from headrace.groups.streams.draft import StreamsDraft
from headrace.groups.streams.facts import (
    AssignmentDelayed,
    ShutdownRequested,
    StreamsMemberSet,
    StreamsTargetsSet,
    TopologySet,
)
from headrace.groups.streams.members import MemberProfile, Role, StreamsMember, Tasks, as_tasks, of_role
from headrace.groups.streams.state import FIRST_EPOCH, StreamsGroup
from headrace.groups.streams.topology import Notice, Status
from headrace.groups.table import GroupTable


class _Entry(NamedTuple):
    """The group a member enters: what has to happen first, and the group to draft on."""

    prelude: tuple[Fact, ...]
    group: StreamsGroup


def heartbeat(table: GroupTable, command: StreamsGroupHeartbeat, now_ms: int) -> GroupPlan:
    refusal = _malformed(command)
    if refusal is not None:
        return _refuse(command, refusal)
    if table.topics is None:
        return _refuse(command, Rejected(ErrorKind.COORDINATOR_LOAD_IN_PROGRESS, "topics are not known yet"))
    entry = _enter(table, command)
    if isinstance(entry, Rejected):
        return _refuse(command, entry)
    refusal = _member_problem(entry.group, command, table)
    if refusal is not None:
        return _refuse(command, refusal)
    config = table.config_of(command.group_id)
    draft = StreamsDraft(entry.group, table.topics, config, now_ms, table.wall_ms(now_ms))
    if command.member_epoch == LEAVE_EPOCH:
        return _leave(draft, command)
    return joined_plans(Plan(entry.prelude), _advance(draft, command))


def _refuse(command: StreamsGroupHeartbeat, refusal: Rejected) -> GroupPlan:
    answer = StreamsHeartbeatResult(refusal.kind, refusal.detail or None)
    return Plan(replies=command.answer(answer))


# --- is the request sound ------------------------------------------------------------------------------------


def _malformed(command: StreamsGroupHeartbeat) -> Rejected | None:
    detail = command.unsupported or _complaint(command)
    if detail is not None:
        return Rejected(ErrorKind.INVALID_REQUEST, detail)
    detail = topologies.complaint(command.topology) if command.topology is not None else None
    return None if detail is None else Rejected(ErrorKind.STREAMS_INVALID_TOPOLOGY, detail)


def _complaint(command: StreamsGroupHeartbeat) -> str | None:
    if not command.member_id:
        return "MemberId can't be empty."
    if not command.group_id:
        return "GroupId can't be empty."
    if command.rack_id == "":
        return "RackId can't be empty."
    names = (command.group_id, command.member_id, command.rack_id, command.process_id, command.client_id)
    if not fits(*names):
        return "A name is too long."
    if command.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if command.member_epoch != JOIN_EPOCH:
        return "Topology can only be provided when (re-)joining." if command.topology is not None else None
    if command.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if command.owned is None or any(command.owned):
        return "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining."
    if command.topology is None:
        return "Topology must be non-null when (re-)joining."
    return None


# --- who is it -----------------------------------------------------------------------------------------------


def _enter(table: GroupTable, command: StreamsGroupHeartbeat) -> _Entry | Rejected:
    group = table.groups.get(command.group_id)
    if isinstance(group, StreamsGroup):
        return _Entry((), group)
    joins = command.member_epoch == JOIN_EPOCH
    if group is None:
        # A member of a group that was forgotten meanwhile hears that it is unknown, and joins again.
        return _Entry((), StreamsGroup(command.group_id))
    if isinstance(group, ClassicGroup) and group.is_empty and joins:
        successor = StreamsGroup(command.group_id)
        # Epochs go on counting where generations ended (R54).
        reached = max(FIRST_EPOCH, group.generation)
        successor.epoch = successor.target_epoch = reached
        handover = GroupDeleted(command.group_id), StreamsTargetsSet(command.group_id, reached, ())
        return _Entry(handover, successor)
    return Rejected(ErrorKind.GROUP_ID_NOT_FOUND, f"Streams group {command.group_id} not found.")


def _member_problem(
    group: StreamsGroup, command: StreamsGroupHeartbeat, table: GroupTable
) -> Rejected | None:
    member, epoch = group.members.get(command.member_id), command.member_epoch
    if member is None:
        if epoch != JOIN_EPOCH:
            return Rejected(ErrorKind.UNKNOWN_MEMBER_ID, f"Member {command.member_id} is not in this group.")
        if len(group.members) >= table.config.streams_max_size:
            return Rejected(ErrorKind.GROUP_MAX_SIZE_REACHED, "The streams group is full.")
        return None
    if epoch in (JOIN_EPOCH, LEAVE_EPOCH, member.epoch):
        return None
    # R54. The epoch before is accepted when the answer with the new one may have been lost: then the member has nothing
    # that it was not given before.
    owned = _as_set(command.owned)
    if epoch == member.previous_epoch < member.epoch and owned is not None and owned <= member.assigned:
        return None
    detail = f"The member epoch is {member.epoch}, not {epoch}. Abandon all tasks and rejoin."
    return Rejected(ErrorKind.FENCED_MEMBER_EPOCH, detail)


# --- what to do ----------------------------------------------------------------------------------------------


def _advance(draft: StreamsDraft, command: StreamsGroupHeartbeat) -> GroupPlan:
    settings, member_id = draft.config.streams, command.member_id
    known = draft.group.members.get(member_id)
    before = known or StreamsMember(member_id)
    refusal = _bring_topology(draft, command)
    if refusal is None:
        refusal = _task_problem(draft, command)
    if refusal is not None:
        return _refuse(command, refusal)
    if not draft.group.members and settings.initial_rebalance_delay_ms:
        until_ms = draft.now_ms + settings.initial_rebalance_delay_ms
        draft.do(AssignmentDelayed(command.group_id, until_ms))
    profile = _profile(command, before.profile)
    is_changed = known is None or profile != known.profile
    if is_changed:
        draft.do(StreamsMemberSet(command.group_id, member_id, profile))
    if is_changed or draft.is_out_of_date(settings.standby_replicas):
        draft.bump(settings.standby_replicas)
    delayed = draft.assign()
    after = draft.step(member_id, _as_set(command.owned))
    if command.shutdown:
        draft.do(ShutdownRequested(command.group_id, member_id))
    draft.answer(command, _answer(draft, command, before, after, delayed))
    # Last: most heartbeats change nothing else, and the group need not be copied to answer them.
    draft.do(SessionExtended(command.group_id, member_id, draft.now_ms + settings.session_timeout_ms))
    return draft.plan()


def _bring_topology(draft: StreamsDraft, command: StreamsGroupHeartbeat) -> Rejected | None:
    group, given = draft.group, command.topology
    if given is None or given == group.topology:
        return None
    if group.topology is not None and group.members.keys() - {command.member_id}:
        if given.epoch < group.topology.epoch:
            return None  # it is told that its topology is old
        return Rejected(
            ErrorKind.INVALID_REQUEST,
            "The group has another topology, and members that run it. Stop all of them before a changed application joins, "
            "or give it an application.id of its own.",
        )
    draft.do(TopologySet(group.group_id, given))
    return None


def _task_problem(draft: StreamsDraft, command: StreamsGroupHeartbeat) -> Rejected | None:
    configured = draft.configured
    if not configured.is_ready or command.owned is None:
        return None
    for lists in command.owned:
        for subtopology, numbers in lists:
            count = configured.tasks.get(subtopology)
            if count is None:
                detail = f"Subtopology {subtopology} does not exist in the topology."
                return Rejected(ErrorKind.INVALID_REQUEST, detail)
            if not all(0 <= number < count for number in numbers):
                return Rejected(ErrorKind.INVALID_REQUEST, f"Subtopology {subtopology} has {count} tasks.")
    return None


def _profile(command: StreamsGroupHeartbeat, old: MemberProfile) -> MemberProfile:
    return MemberProfile(
        command.rack_id if command.rack_id is not None else old.rack_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms if command.rebalance_timeout_ms != -1 else old.rebalance_timeout_ms,
        command.topology.epoch if command.topology is not None else old.topology_epoch,
        command.process_id if command.process_id is not None else old.process_id,
        command.endpoint if command.endpoint is not None else old.endpoint,
        command.tags if command.tags is not None else old.tags,
    )


def _answer(
    draft: StreamsDraft,
    command: StreamsGroupHeartbeat,
    before: StreamsMember,
    after: StreamsMember,
    delayed: Notice | None,
) -> StreamsHeartbeatResult:
    configured, endpoints = draft.configured, draft.group.endpoints(draft.index)
    # A member that says everything once more may have lost the answer before.
    is_full = command.rebalance_timeout_ms != -1 and command.owned is not None
    news = command.member_epoch == JOIN_EPOCH or is_full or before.assigned != after.assigned
    return StreamsHeartbeatResult(
        ErrorKind.NONE,
        None,
        after.member_id,
        after.epoch,
        draft.config.streams.heartbeat_interval_ms,
        by_role(after.assigned) if news else None,
        endpoints.epoch,
        endpoints if endpoints.epoch != command.endpoint_epoch else None,
        tuple(notice for notice in (*_notices(draft.group, after), delayed, configured.problem) if notice),
        configured.missing,
    )


def _notices(group: StreamsGroup, member: StreamsMember) -> list[Notice]:
    found = []
    if group.topology is not None and member.profile.topology_epoch < group.topology.epoch:
        detail = (
            f"The member's topology epoch {member.profile.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}."
        )
        found.append(Notice(Status.STALE_TOPOLOGY, detail))
    if group.shutdown_by is not None:
        detail = (
            f"Member {group.shutdown_by} met with a fatal error and asked the whole application to shut down."
        )
        found.append(Notice(Status.SHUTDOWN_APPLICATION, detail))
    return found


def _leave(draft: StreamsDraft, command: StreamsGroupHeartbeat) -> GroupPlan:
    if command.shutdown:
        draft.do(ShutdownRequested(command.group_id, command.member_id))
    answer = StreamsHeartbeatResult(ErrorKind.NONE, None, command.member_id, command.member_epoch)
    draft.answer(command, answer)
    return remove_members(draft, [command.member_id])


def remove_members(draft: StreamsDraft, member_ids: list[str]) -> GroupPlan:
    """They left or went silent: their tasks are free from now on."""
    for member_id in member_ids:
        draft.remove(member_id)
    draft.bump(draft.group.standby_replicas)
    return draft.plan()


def by_role(tasks: Tasks) -> TasksByRole:
    return TasksByRole(*(of_role(tasks, role) for role in Role))


def _as_set(owned: TasksByRole | None) -> Tasks | None:
    if owned is None:
        return None
    return frozenset(task for role, lists in zip(Role, owned, strict=True) for task in as_tasks(role, lists))
