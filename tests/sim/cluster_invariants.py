"""What must hold at every step of a simulated cluster (correctness.md, section 3), for every partition of every topic.

The journals of coordinators (`__transaction_state`, `__consumer_offsets`, queues) are partitions like any other here, and
the machines that live on them are held to what their journal says.

A look happens when the coordinator's store has changed, when a leader has committed something, and every 100 ms besides.
What leaders commit is heard from them at that moment and kept in a book, so nothing slips through between two looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.broker.load import BARRIER, ShardState
from headrace.broker.replay import JournalReplay
from headrace.broker.shards import Shard
from headrace.cluster import keys
from headrace.cluster.state import PartitionState, TopicState, decode
from headrace.cluster.topic_configs import TopicConfig
from headrace.coordinator.store import RevisionedStore
from headrace.groups.shard import GroupShard
from headrace.records.batch import scan
from headrace.records.read import read_records
from headrace.testing.sim_node import SimNode
from headrace.transactions.shard import TransactionShard

LOOK_EVERY_S = 0.1
COMPARE_EVERY_S = 0.5
CHUNK = 1 << 20


class Broken(AssertionError):
    """An invariant of section 3 does not hold."""


class Place(NamedTuple):
    topic: str
    number: int


Life = tuple[bytes, int]
"""A partition of one life of a topic: its id and the number. One that is made again under the name has a new history."""


class Book:
    """What was ever committed in one partition: how far, and which batch lies where."""

    def __init__(self) -> None:
        self.end = 0
        self.written_to = 0
        self.batches: dict[int, tuple[int, int]] = {}
        """base offset -> (CRC, leader epoch)"""


class Invariants:
    def __init__(
        self,
        store: RevisionedStore,
        nodes: Mapping[int, SimNode],
        time_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._time_s = time_s
        self.books: dict[Life, Book] = {}
        self._ids: dict[str, bytes] = {}
        self._leaders: dict[tuple[Life, int], str] = {}
        self._compared: dict[tuple[str, Place], tuple[Any, int]] = {}
        self._states: dict[Place, tuple[int, PartitionState]] = {}
        self._states_at, self._all_states = -1, dict[Place, PartitionState]()
        self._min_isr: dict[bytes, int] = {}
        self._is_news = True
        self._looked_s = self._compared_s = 0.0
        store.on_change(self._stored)

    # -- news -------------------------------------------------------------------------------------------------------

    def _stored(self) -> None:
        self._is_news = True

    def _opened(self, partition: Any) -> None:
        life = (partition.topic_id, partition.tp.partition)

        def committed(offset: int) -> None:
            # In the broker's own turn: only take note, so that nothing of ours fails in its place.
            if partition.is_leader:
                book = self.books.setdefault(life, Book())
                book.end = max(book.end, offset)
                self._is_news = True

        partition.on_commit.append(committed)

    def listen(self, broker: Any) -> None:
        """To a broker that is about to open its logs."""
        broker.replicas.on_open.append(self._opened)

    # -- looking ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        now_s = self._time_s()
        if not self._is_news and now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._is_news, self._looked_s = False, now_s
        compares = now_s - self._compared_s >= COMPARE_EVERY_S
        if compares:
            self._compared_s = now_s
        for place, state in self.states().items():
            self._one_leader_per_epoch(place)
            self._complete(place, state)
            self._waits_for_enough(place, state)
            self._elr_is_only_for_the_needy(place, state)
            if compares:
                self._write_book(place)
                self._same_history(place)
        for node in self._nodes.values():
            self._queues_are_where_they_are(node)
        if compares:
            self._coordinators_are_loaded()
            for node in self._nodes.values():
                self._what_was_sent_lies_in_the_log(node)

    def states(self) -> dict[Place, PartitionState]:
        """Every partition as the coordinator has it now."""
        if self._states_at == self._store.revision:
            return self._all_states
        found: dict[Place, PartitionState] = {}
        for item in self._store.read(keys.TOPICS).items:
            name = item.key.removeprefix(keys.TOPICS)
            topic = decode(TopicState, item.value)
            self._ids[name] = topic.topic_id
            if topic.topic_id not in self._min_isr:
                self._min_isr[topic.topic_id] = int(
                    topic.configs.get("min.insync.replicas", TopicConfig().min_insync_replicas)
                )
            for number in range(topic.partitions):
                entry = self._store.get(keys.partition(topic.topic_id, number))
                if entry is None:
                    continue
                place = Place(name, number)
                held = self._states.get(place)
                if held is None or held[0] != entry.mod_revision:
                    held = self._states[place] = (entry.mod_revision, decode(PartitionState, entry.value))
                found[place] = held[1]
        self._states_at, self._all_states = self._store.revision, found
        return found

    def replica(self, node: SimNode, place: Place) -> Any:
        service = node.service
        if service is None or not node.is_running or not hasattr(service, "broker"):
            return None
        found = service.broker.partitions.get(tuple(place))
        # Somebody may have it of a topic that had the name before, until it hears that it is gone.
        return None if found is None or found.topic_id != self._ids.get(place.topic) else found

    def _life(self, place: Place) -> Life:
        return self._ids[place.topic], place.number

    def _replicas(self, place: Place) -> Iterator[tuple[SimNode, Any]]:
        for node in self._nodes.values():
            replica = self.replica(node, place)
            if replica is not None and not self._has_failed_disk(node, replica):
                yield node, replica

    @staticmethod
    def _has_failed_disk(node: SimNode, replica: Any) -> bool:
        """S7: after a failed sync, reads may show anything; such a replica is out of service and proves nothing."""
        return replica.failed or node.service.broker.flusher.failure is not None

    # -- partitions -------------------------------------------------------------------------------------------------

    def _one_leader_per_epoch(self, place: Place) -> None:
        for node, replica in self._replicas(place):
            if replica.following._machine.offline:
                raise Broken(f"R24: {node.name} found its log of {place} at odds with its leader's")
            if not replica.is_leader:
                continue
            life = f"{node.name}.{node.lives}"
            held = self._leaders.setdefault((self._life(place), replica.leader_epoch), life)
            if held != life:
                raise Broken(f"R9: epoch {replica.leader_epoch} of {place} is led by {held} and {life}")

    def _complete(self, place: Place, state: PartitionState) -> None:
        """LeaderCandidateCompleteness: whoever may be elected holds everything that was ever committed."""
        book = self.books.get(self._life(place))
        if book is None:
            return
        for member in (*state.isr, *state.elr):
            replica = self.replica(self._nodes[member], place)
            if replica is not None and replica.log.end_offset < book.end:
                raise Broken(
                    f"{place}: broker {member} may lead and ends at {replica.log.end_offset}, "
                    f"but {book.end} is committed; {state}"
                )

    def _waits_for_enough(self, place: Place, state: PartitionState) -> None:
        """ReplicationQuorumSuperset: a leader waits for everybody whom the coordinator has in the ISR (R13)."""
        if state.leader < 0:
            return
        replica = self.replica(self._nodes[state.leader], place)
        if replica is None or not replica.is_leader or replica.leader_epoch != state.leader_epoch:
            return
        waits_for = replica._leader._maximal_isr()
        if not waits_for.issuperset(state.isr):
            raise Broken(f"R13: the leader of {place} waits for {sorted(waits_for)}, the ISR is {state.isr}")

    def _elr_is_only_for_the_needy(self, place: Place, state: PartitionState) -> None:
        enough = min(self._min_isr[self._ids[place.topic]], len(state.replicas))
        if len(state.isr) >= enough and state.elr:
            raise Broken(f"R28: ISR {state.isr} of {place} is large enough, yet ELR {state.elr}")

    # -- queues -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _queues_are_where_they_are(node: SimNode) -> None:
        """Where the parts of a queue are is looked up once, and forgotten when the cluster or the shards here change."""
        services = getattr(node.service, "services", None)
        if services is None or not node.is_running:
            return
        layouts = services.queue_rooms.layouts
        if layouts._revision != layouts._image.revision:
            return  # whoever asks looks again
        for name, layout in layouts._known.items():
            if layout != layouts._look(layout.spec):
                now = layouts._look(layout.spec)
                raise Broken(f"{node.name} looks for {name} where it was: {layout[1:]} instead of {now[1:]}")

    def _what_was_sent_lies_in_the_log(self, node: SimNode) -> None:
        """Messages are handed out from memory as the log has them."""
        services = getattr(node.service, "services", None)
        if services is None or not node.is_running:
            return
        for tp, hosted in services.queue_rooms.shards.hosted.items():
            data, sent = hosted.data, hosted.payloads._sent
            if not sent or self.replica(node, Place(*tp)) is not data or self._has_failed_disk(node, data):
                continue
            end = data.last_stable_offset
            for offset, record in sent.items():
                if data.log.start_offset <= offset < end:
                    records = read_records(data.log.read(offset, 1, end), max_bytes=CHUNK)
                    if record not in records:
                        raise Broken(
                            f"{node.name} would hand out of {tp} {record}, and the log has {records}"
                        )

    # -- what lies in the logs ----------------------------------------------------------------------------------------

    def _write_book(self, place: Place) -> None:
        """NoCommittedRecordLostGlobally: the first leader that commits an offset says for ever what it holds."""
        book = self.books.get(self._life(place))
        if book is None or book.written_to >= book.end:
            return
        for _, replica in self._replicas(place):
            if replica.is_leader and replica.high_watermark >= book.end:
                for header in _headers(replica.log, book.written_to, book.end):
                    book.batches.setdefault(header.base_offset, (header.crc, header.leader_epoch))
                book.written_to = book.end
                return

    def _same_history(self, place: Place) -> None:
        """LogMatching: below its high watermark every replica holds what was committed there, byte for byte.

        Compacted logs are left out: each replica compacts for itself. Their ends are compared all the same.
        """
        book = self.books.get(self._life(place))
        if book is None:
            return
        for node, replica in self._replicas(place):
            held, compared_to = self._compared.get((node.name, place), (None, 0))
            if held is not replica:
                compared_to = replica.log.start_offset
            if replica.log.end_offset < compared_to:
                raise Broken(f"{node.name} has cut committed records of {place} from {compared_to}")
            upto = min(replica.high_watermark, book.written_to)
            if upto > compared_to:
                if not replica.config.is_compacted:
                    self._compare(node, replica, place, compared_to, upto)
                compared_to = upto
            self._compared[node.name, place] = (replica, compared_to)

    def _compare(self, node: SimNode, replica: Any, place: Place, start: int, end: int) -> None:
        book = self.books[self._life(place)]
        for header in _headers(replica.log, start, end):
            committed = book.batches.get(header.base_offset)
            # None: deleted at the leader before it could be written down.
            if committed not in (None, (header.crc, header.leader_epoch)):
                raise Broken(
                    f"LogMatching: {node.name} holds another batch at {header.base_offset} of {place} than was committed"
                )

    # -- coordinators -------------------------------------------------------------------------------------------------

    def _shards(self) -> Iterator[tuple[SimNode, Shard]]:
        for node in self._nodes.values():
            services = getattr(node.service, "services", None)
            if services is None or not node.is_running:
                continue
            for shards in (services.groups, services.transactions):
                for shard in shards.shards.values():
                    yield node, shard

    def _coordinators_are_loaded(self) -> None:
        """R21: who answers has loaded everything that was committed before its leadership; R41: into a legal state."""
        for node, shard in self._shards():
            if shard.state is not ShardState.READY:
                continue
            leader = shard.partition._leader
            if leader is not None and leader.high_watermark < leader.epoch_start_offset:
                raise Broken(
                    f"R21: {node.name} answers for {shard.partition.tp} before it knows what is committed"
                )
            shard.machine.invariants()

    def memory_is_what_the_journals_say(self) -> None:
        """At rest: a coordinator's memory and a fresh replay of its journal are the same (R42, R53)."""
        for node, shard in self._shards():
            if shard.state is not ShardState.READY:
                continue
            again = shard.make_machine()
            JournalReplay(again).read(everything(shard.partition.log), shard.runtime.clock.now_ms())
            if _gist(again) != _gist(shard.machine):
                raise Broken(
                    f"{node.name}: {shard.partition.tp} says {_gist(again)}, memory {_gist(shard.machine)}"
                )

    # -- at the end ----------------------------------------------------------------------------------------------------

    def is_whole(self, is_live: Callable[[int], bool]) -> bool:
        """Liveness: everybody is let in, every partition is led, every replica is in sync and holds the same."""
        states = self.states()
        if not all(is_live(number) for number in self._nodes) or not states:
            return False
        for place, state in states.items():
            if state.leader < 0 or len(state.isr) < len(state.replicas) or state.reassigning:
                return False
            replicas = [self.replica(self._nodes[member], place) for member in state.replicas]
            if any(replica is None for replica in replicas):
                return False
            if len({replica.log.end_offset for replica in replicas}) > 1:
                return False
        return True

    def logs_match(self) -> None:
        for place, state in self.states().items():
            contents: dict[str, object] = {}
            for member in state.replicas:
                replica = self.replica(self._nodes[member], place)
                if replica is not None:
                    data = everything(replica.log)
                    contents[f"b{member}"] = _latest(data) if replica.config.is_compacted else data
            first = next(iter(contents.values()), None)
            if any(content != first for content in contents.values()):
                raise Broken(f"LogMatching: the logs of {place} differ between {sorted(contents)}")


def _headers(log: Any, start: int, end: int) -> Iterator[Any]:
    offset = max(start, log.start_offset)
    while offset < end:
        piece = log.read(offset, CHUNK, end)
        if not piece:
            return
        for _, header in scan(piece):
            if header.base_offset >= start:
                yield header
            offset = header.next_offset


def everything(log: Any) -> bytes:
    data, offset = b"", log.start_offset
    while offset < log.end_offset:
        piece = bytes(log.read(offset, CHUNK, log.end_offset))
        if not piece:
            break
        for _, header in scan(piece):
            offset = header.next_offset
        data += piece
    return data


def _latest(data: bytes) -> dict[bytes, bytes]:
    """What compaction keeps: the last value of each key."""
    kept: dict[bytes, bytes] = {}
    for at, header in scan(data):
        if header.is_control:
            continue
        for record in read_records(data, at, max_bytes=CHUNK):
            if record.key is None:
                continue
            if record.value is None:
                kept.pop(bytes(record.key), None)
            else:
                kept[bytes(record.key)] = bytes(record.value)
    kept.pop(BARRIER.key, None)
    return kept


def _gist(machine: Any) -> object:
    """The part of a machine's state that is durable."""
    if isinstance(machine, TransactionShard):
        return {name: entry.transaction for name, entry in sorted(machine.table.entries.items())}
    if isinstance(machine, GroupShard):
        return {
            (group, topic, number): (value.offset, value.metadata)
            for group, topics in sorted(machine.table.offsets.committed.items())
            for topic, numbers in sorted(topics.items())
            for number, value in sorted(numbers.items())
        }
    return None
