"""Runs tests/scenario/groups/*.txt: one file per behaviour or KIP.

Clients have names (a, b, …); the n-th member id drawn for client a is `a-n`. Steps:

    config key=value …                     settings of GroupConfig; before anything else
    join GROUP CLIENT [new] [v=9] [static=INSTANCE] [protocols=range:x,sticky:y] [type=consumer] [session=10s] [rebalance=60s]
                                           protocols=sticky:reads/t/owns/t-0+t-1 embeds a real subscription
    sync GROUP CLIENT [generation=N] [a=bytes …]      with assignments when given; a=@t-0+t-1 is a real one
    beat GROUP CLIENT [generation=N]       heartbeat with the generation the client knows
    leave GROUP CLIENT… | static:INSTANCE
    commit GROUP [CLIENT] t-0=42 …         without a client: a simple consumer
    fetch GROUP [stable] [t-0 …]
    txn-commit GROUP pid=5 t-0=42 ; marker pid=5 commit|abort
    topic-deleted TOPIC ; delete GROUP ; list ; show GROUP
    topics t=4 u=2                         all topics there are
    consumer GROUP CLIENT join|beat|done|leave|away [topics=t,u] [regex=t.*] [static=INSTANCE] [assignor=range] [rebalance=60s]
                                           done: a heartbeat that reports to own what it was told, and no more
    share GROUP CLIENT join|beat|leave [topics=t,u]
    advance 3s                             stops at every deadline on the way
    restart                                replay the journal into a new shard
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from subscriptions import encode_subscription

from headrace.core.plan import JournalRecord, Plan
from headrace.core.units import parse_duration_ms
from headrace.groups import facts
from headrace.groups.commands import (
    CommitOffsets,
    DeleteGroups,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    ListGroups,
    MemberIdentity,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncResult,
    TopicDeleted,
    TxnCommitOffsets,
    TxnMarker,
)
from headrace.groups.config import GroupConfig
from headrace.groups.consumer import facts as consumer_facts
from headrace.groups.consumer.commands import ConsumerGroupHeartbeat, ConsumerHeartbeatResult, TopicsChanged
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.shard import GroupShard
from headrace.groups.share import facts as share_facts
from headrace.groups.share.commands import ShareGroupHeartbeat, ShareHeartbeatResult
from headrace.groups.state import ClassicGroup
from headrace.groups.subscription import (
    MemberSubscription,
    encode_assignment,
    parse_assignment,
)
from headrace.groups.topics import TopicInfo

FILES = sorted((Path(__file__).parent / "groups").glob("*.txt"))


def options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    plain = [word for word in words if "=" not in word]
    return plain, dict(word.split("=", 1) for word in words if "=" in word)


def partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


class Stage:
    """A shard, its journal, and clients that remember what they were told."""

    def __init__(self) -> None:
        self.config = GroupConfig(initial_rebalance_delay_ms=0)
        self.shard = GroupShard(self.config)
        self.now_ms = 0
        self.journal: list[tuple[JournalRecord, int | None]] = []
        self.waiting: dict[int, tuple[str, str, str]] = {}
        self.member_ids: dict[tuple[str, str], str] = {}
        self.generations: dict[tuple[str, str], int] = {}
        self.drawn: dict[str, int] = {}
        self.instances: dict[tuple[str, str], str] = {}
        self.told: dict[tuple[str, str], Any] = {}
        self.out: list[str] = []
        self._waiter = 0

    def execute(self, line: str) -> list[str]:
        verb, *words = line.split()
        self.out = []
        getattr(self, "do_" + verb.replace("-", "_"))(*options(words))
        return self.out

    # --- driver ----------------------------------------------------------------------------------------------

    def submit(self, who: str, verb: str, group_id: str, make: Callable[[int], Any]) -> None:
        self._waiter += 1
        self.waiting[self._waiter] = (who, verb, group_id)
        self.run(self.shard.decide(make(self._waiter), self.now_ms))
        if self._waiter in self.waiting and verb in ("join", "sync"):
            self.out.append(f"{who}: {verb} parked")

    def run(self, plan: Plan) -> None:
        before = {group_id: group.state_name for group_id, group in self.shard.table.groups.items()}
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if isinstance(fact, facts.RebalanceStarted):
                self.out.append(f"{fact.group_id}: rebalance, {fact.reason}")
            if fact.durable:
                owner = getattr(fact, "producer", None)
                producer = owner[0] if owner else None
                self.journal += ((record, producer) for record in self.shard.encode(fact))
                self.out.append(f"journal: {journal_line(fact)}")
        self.shard.invariants()
        after = {group_id: group.state_name for group_id, group in self.shard.table.groups.items()}
        for group_id in sorted(before.keys() | after.keys()):
            old, new = before.get(group_id, "-"), after.get(group_id, "-")
            if old != new:
                self.out.append(f"{group_id}: {old} -> {new}")
        for waiter, value in plan.replies:
            self.answered(*self.waiting.pop(waiter), value)

    def answered(self, who: str, verb: str, group_id: str, value: Any) -> None:
        if isinstance(value, JoinResult):
            if value.member_id:
                self.member_ids[group_id, who] = value.member_id
            if value.generation >= 0:
                self.generations[group_id, who] = value.generation
        if isinstance(value, ConsumerHeartbeatResult | ShareHeartbeatResult) and not value.error:
            self.generations[group_id, who] = value.member_epoch
            if value.assignment is not None:
                self.told[group_id, who] = value.assignment
        self.out += (f"{who}: {verb} {line}" for line in reply_lines(value))

    def identity(self, group_id: str, client: str) -> tuple[str, str | None]:
        return self.member_ids.get((group_id, client), ""), self.instances.get((group_id, client))

    def generation(self, group_id: str, client: str, given: dict[str, str]) -> int:
        return int(given.pop("generation", self.generations.get((group_id, client), -1)))

    def do_topics(self, _: list[str], given: dict[str, str]) -> None:
        topics = {name: TopicInfo(topic_id(name), int(count)) for name, count in given.items()}
        self.submit("topics", "changed", "", lambda w: TopicsChanged(topics, waiter=w))

    def do_consumer(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, client, action = plain
        key = (group_id, client)
        if action == "join" and key not in self.member_ids:
            self.drawn[client] = self.drawn.get(client, 0) + 1
            self.member_ids[key] = f"{client}-{self.drawn[client]}"
        if "static" in given:
            self.instances[key] = given["static"]
        fields: dict[str, Any] = {"instance_id": self.instances.get(key), "assignor": given.get("assignor")}
        if "topics" in given:
            fields["topics"] = tuple(given["topics"].split(","))
        if "regex" in given:
            fields["pattern"] = given["regex"]
        if action == "join":
            fields.update(rebalance_timeout_ms=parse_duration_ms(given.get("rebalance", "60s")), owned=())
        elif action == "done":
            fields["owned"] = self.told[key]
        epoch = {"join": 0, "leave": -1, "away": -2}.get(action, self.generations.get(key, 0))
        member_id = self.member_ids.get(key, client)
        self.submit(
            client,
            action,
            group_id,
            lambda w: ConsumerGroupHeartbeat(group_id, member_id, epoch, **fields, waiter=w),
        )
        if action in ("leave", "away"):
            self.member_ids.pop(key, None)

    def do_share(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, client, action = plain
        epoch = {"join": 0, "leave": -1}.get(action, self.generations.get((group_id, client), 0))
        topics = tuple(given["topics"].split(",")) if "topics" in given else None
        self.submit(
            client,
            action,
            group_id,
            lambda w: ShareGroupHeartbeat(group_id, client, epoch, topics=topics, waiter=w),
        )

    # --- steps -----------------------------------------------------------------------------------------------

    def do_config(self, _: list[str], given: dict[str, str]) -> None:
        values: dict[str, Any] = {key: parse_duration_ms(value) for key, value in given.items()}
        self.config = GroupConfig(**{"initial_rebalance_delay_ms": 0, **values})
        self.shard = GroupShard(self.config)

    def do_join(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, client, *flags = plain
        instance_id = given.get("static")
        if instance_id is not None:
            self.instances[group_id, client] = instance_id
        fresh = "new" in flags
        member_id = "" if fresh else self.member_ids.get((group_id, client), "")
        if not member_id:
            self.drawn[client] = self.drawn.get(client, 0) + 1
        pairs = (item.partition(":") for item in given.get("protocols", "range").split(","))
        protocols = tuple(Protocol(name, embedded(metadata)) for name, _, metadata in pairs)
        version = int(given.get("v", 9))
        self.submit(
            client,
            "join",
            group_id,
            lambda waiter: JoinGroup(
                group_id,
                member_id,
                f"{client}-{self.drawn[client]}",
                given.get("type", "consumer"),
                protocols,
                parse_duration_ms(given.get("session", "10s")),
                parse_duration_ms(given.get("rebalance", "60s")),
                client,
                "/127.0.0.1",
                self.instances.get((group_id, client)),
                version >= 4,
                version >= 9,
                given.get("reason"),
                waiter=waiter,
            ),
        )

    def do_sync(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, client = plain
        member_id, instance_id = self.identity(group_id, client)
        generation = self.generation(group_id, client, given)
        assignments = tuple((self.member_ids[group_id, name], assigned(text)) for name, text in given.items())
        self.submit(
            client,
            "sync",
            group_id,
            lambda w: SyncGroup(group_id, member_id, generation, assignments, instance_id, waiter=w),
        )

    def do_beat(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, client = plain
        member_id, instance_id = self.identity(group_id, client)
        member_id = given.pop("as", member_id)
        generation = self.generation(group_id, client, given)
        self.submit(
            client,
            "beat",
            group_id,
            lambda w: Heartbeat(group_id, member_id, generation, instance_id, waiter=w),
        )

    def do_leave(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, *names = plain
        members = tuple(
            MemberIdentity("", name[7:])
            if name.startswith("static:")
            else MemberIdentity(*self.identity(group_id, name))
            for name in names
        )
        self.submit("admin", "leave", group_id, lambda w: LeaveGroup(group_id, members, waiter=w))

    def do_commit(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, *rest = plain
        client = rest[0] if rest else ""
        member_id, instance_id = self.identity(group_id, client)
        generation = self.generation(group_id, client, given)
        offsets = tuple(OffsetToCommit(*partition(name), int(offset)) for name, offset in given.items())
        self.submit(
            client or "simple",
            "commit",
            group_id,
            lambda w: CommitOffsets(group_id, offsets, member_id, generation, instance_id, waiter=w),
        )

    def do_fetch(self, plain: list[str], given: dict[str, str]) -> None:
        group_id, *rest = plain
        names = [partition(name) for name in rest if name != "stable"]
        topics = tuple((topic, (index,)) for topic, index in names) or None
        self.submit(
            "admin", "fetch", group_id, lambda w: FetchOffsets(group_id, topics, "stable" in rest, waiter=w)
        )

    def do_txn_commit(self, plain: list[str], given: dict[str, str]) -> None:
        (group_id,) = plain
        pid = int(given.pop("pid"))
        offsets = tuple(OffsetToCommit(*partition(name), int(offset)) for name, offset in given.items())
        who = f"producer {pid}"
        self.submit(who, "commit", group_id, lambda w: TxnCommitOffsets(group_id, pid, 0, offsets, waiter=w))

    def do_marker(self, plain: list[str], given: dict[str, str]) -> None:
        pid = int(given["pid"])
        self.submit("marker", plain[0], "", lambda w: TxnMarker(pid, 0, plain[0] == "commit", waiter=w))

    def do_topic_deleted(self, plain: list[str], given: dict[str, str]) -> None:
        self.submit("topic", plain[0], "", lambda w: TopicDeleted(plain[0], waiter=w))

    def do_delete(self, plain: list[str], given: dict[str, str]) -> None:
        self.submit("admin", "delete", "", lambda w: DeleteGroups(tuple(plain), waiter=w))

    def do_list(self, plain: list[str], given: dict[str, str]) -> None:
        self.submit("admin", "list", "", lambda w: ListGroups(waiter=w))

    def do_show(self, plain: list[str], given: dict[str, str]) -> None:
        group = self.shard.table.groups.get(plain[0])
        if group is None:
            self.out.append(f"{plain[0]}: unknown")
            return
        if isinstance(group, ConsumerGroup):
            self.out.append(f"{plain[0]}: {group.state_name} epoch={group.epoch} target={group.target_epoch}")
            for consumer in group.members.values():
                now = f"epoch={consumer.epoch} {consumer.state.name} assigned={part_names(consumer.assigned)}"
                later = part_names(group.targets.get(consumer.member_id, ()))
                gone = part_names(consumer.revoking)
                self.out.append(f"  {consumer.member_id} {now} revoking={gone} target={later}")
            return
        assert isinstance(group, ClassicGroup)
        self.out.append(
            f"{plain[0]}: {group.state.value} generation={group.generation} leader={group.leader}"
        )
        for member in group.members.values():
            static = f" static={member.instance_id}" if member.instance_id is not None else ""
            self.out.append(f"  {member.member_id}{static} assignment={readable(member.assignment) or '-'}")

    def do_advance(self, plain: list[str], given: dict[str, str]) -> None:
        end_ms = self.now_ms + parse_duration_ms(plain[0])
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(at_ms, self.now_ms)
            start = len(self.out)
            self.run(self.shard.expire(self.now_ms))
            self.out[start:] = (f"[{self.now_ms / 1000:g}s] {line}" for line in self.out[start:])
        self.now_ms = end_ms

    def do_restart(self, plain: list[str], given: dict[str, str]) -> None:
        self.shard = GroupShard(self.config)
        for record, producer in self.journal:
            if producer is None:
                self.shard.replay(record, self.now_ms)
            else:
                self.shard.replay_transactional(record, producer, self.now_ms)
        self.waiting.clear()
        for group_id, group in sorted(self.shard.table.groups.items()):
            self.out.append(f"{group_id}: loaded {group.state_name}")
        self.run(self.shard.loaded(self.now_ms))


def embedded(text: str) -> bytes:
    """Metadata of a protocol. `reads/t/owns/t-0,t-1` is a real subscription; anything else stands for itself."""
    if not text.startswith("reads/"):
        return text.encode()
    _, topics, *rest = text.split("/")
    owned = [partition(part) for part in rest[1].split("+")] if rest else []
    grouped = tuple((topic, (index,)) for topic, index in owned)
    return encode_subscription(MemberSubscription(1, tuple(topics.split("+")), grouped))


def assigned(text: str) -> bytes:
    """`@t-0+t-1` is a real assignment; anything else stands for itself."""
    if not text.startswith("@"):
        return text.encode()
    parts = [partition(part) for part in text[1:].split("+")]
    return encode_assignment(1, tuple((topic, (index,)) for topic, index in parts))


def readable(assignment: bytes) -> str:
    try:
        text = assignment.decode("ascii")
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    parts = parse_assignment(assignment) or ()
    return "@" + "+".join(f"{topic}-{index}" for topic, indexes in parts for index in indexes)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def part_names(parts: Any) -> str:
    return ",".join(f"{t.rstrip(bytes(1)).decode()}-{p}" for t, p in sorted(parts)) or "-"


def reply_lines(value: Any) -> list[str]:
    """A reply as people read it: the error, then what is not a default."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [" ".join(str(getattr(f, "name", f)) for f in item) for item in value] or ["nothing"]
    if value is None:
        return ["NONE"]
    if not hasattr(value, "_fields"):
        return [value.name]
    error, *_ = value
    parts = [error.name]
    if isinstance(value, ConsumerHeartbeatResult | ShareHeartbeatResult):
        if error:
            return [f"{error.name} ({value.message})"]
        flat = None if value.assignment is None else [(t, p) for t, many in value.assignment for p in many]
        told = "unchanged" if flat is None else part_names(flat)
        return [f"NONE epoch={value.member_epoch} assignment={told}"]
    for field, content in list(value._asdict().items())[1:]:
        if field == "protocol_type" or content == value._field_defaults.get(field):
            continue
        if field == "partitions":
            parts += (_partition_line(p) for p in content)
        elif field == "members":
            parts.append("members=" + ",".join(m.member_id or f"static:{m.instance_id}" for m in content))
            parts += (
                f"{m.member_id or m.instance_id}:{m.error.name}" for m in content if getattr(m, "error", 0)
            )
        elif isinstance(content, bytes):
            parts.append(f"{field}={readable(content)}")
        else:
            parts.append(f"{field}={content}")
    if isinstance(value, SyncResult) and not error and not value.assignment:
        parts.append("assignment=-")
    return [" ".join(parts)]


def _partition_line(item: Any) -> str:
    what = item.error.name if item.error or not hasattr(item, "offset") else str(item.offset)
    return f"{item.topic}-{item.partition}={what}"


def journal_line(fact: Any) -> str:
    name = type(fact).__name__
    if hasattr(fact, "snapshot"):
        members = ",".join(member.member_id for member in fact.snapshot.members) or "-"
        return f"{name} {fact.group_id} generation={fact.snapshot.generation} members={members}"
    if isinstance(fact, facts.OffsetsCommitted | facts.TxnOffsetsPending):
        entries = " ".join(f"{e.topic}-{e.partition}={e.value.offset}" for e in fact.entries)
        return f"{name} {fact.group_id} {entries}"
    if isinstance(fact, facts.OffsetsDropped):
        return f"{name} {fact.group_id} " + " ".join(f"{t}-{p}" for t, p in fact.partitions)
    if isinstance(fact, consumer_facts.GroupEpochSet | share_facts.ShareEpochSet):
        return f"{name} {fact.group_id} epoch={fact.epoch}"
    if isinstance(fact, consumer_facts.TargetsSet | share_facts.ShareTargetsSet):
        targets = " ".join(f"{member}={part_names(parts)}" for member, parts in fact.targets) or "as before"
        return f"{name} {fact.group_id} epoch={fact.epoch} {targets}"
    if isinstance(fact, consumer_facts.CurrentSet):
        what = f"epoch={fact.epoch} {fact.state.name} assigned={part_names(fact.assigned)}"
        revoking = f" revoking={part_names(fact.revoking)}" if fact.revoking else ""
        return f"{name} {fact.group_id} {fact.member_id} {what}{revoking}"
    member_id = getattr(fact, "member_id", "")
    return f"{name} {fact.group_id} {member_id}".rstrip()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, scenario: Callable[[Path, Callable[[str], list[str]]], None]) -> None:
    scenario(path, Stage().execute)
