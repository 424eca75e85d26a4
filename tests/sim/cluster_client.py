"""Clients of a simulated cluster: they find leaders, retry as real ones do, and write down what they were told.

Producers are idempotent or transactional (as librdkafka is: without KIP-890). An answer that does not come in time is
an unknown outcome, and the client goes on as a new process with a new producer id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.core.limits import MIB
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch
from headrace.records.read import read_control, read_records
from headrace.testing.dice import Dice
from headrace.testing.history import OperationHistory, OperationOutcome, Poll, Send
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.fetch_response import FetchPartitionResponse, decode_fetch_response
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from headrace.wire.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)

Address = tuple[str, int]
RETRY_S = 0.1
CALL_S = 4.0
GIVE_UP_S = 30.0
FENCED = (ErrorKind.PRODUCER_FENCED, ErrorKind.INVALID_PRODUCER_EPOCH)
"""What a transactional producer may be told whose transaction took longer than its timeout (R51)."""

ABORTED = (ErrorKind.INVALID_TXN_STATE, ErrorKind.TRANSACTION_ABORTABLE)
"""... or that is the word of partitions for it (R45)."""

PAUSE_S = 0.5
GROUP = "g70"
WALL_MS = 1_750_000_000_000


class Violation(AssertionError):
    """A client was told something that no correct cluster says."""


class Gone(Exception):
    """No usable answer in time: what was asked may or may not have happened."""


class ClusterClient:
    def __init__(self, addresses: list[Address], topic: str, dice: Dice) -> None:
        self._addresses = addresses
        self._topic = topic
        self._dice = dice
        self._connections: dict[Address, PeerConnection] = {}
        self._leaders: dict[int, Address] = {}

    async def connection(self, address: Address) -> PeerConnection:
        held = self._connections.get(address)
        if held is None or held.closed.done():
            held = self._connections[address] = await PeerConnection.open(*address, "sim")
        return held

    async def ask_anyone(self, key: int, version: int, request: object, give_up_s: float = GIVE_UP_S) -> Any:
        deadline = _now() + give_up_s
        while _now() < deadline:
            try:
                connection = await self.connection(self._dice.pick(self._addresses))
                return await connection.call(key, version, request, CALL_S)
            except PeerLost:
                await asyncio.sleep(RETRY_S)
        raise Gone

    async def leader(self, partition: int) -> Address:
        while partition not in self._leaders:
            request = MetadataRequest([MetadataRequestTopic(ZERO_UUID, self._topic)], False)
            answer = await self.ask_anyone(ApiKey.METADATA, 7, request)
            brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for row in answer.topics[0].partitions if answer.topics else ():
                # As in Kafka: a client can't ask a broker that the same answer does not name.
                assert row.leader_id in brokers or row.leader_id < 0, (
                    f"led by {row.leader_id}, who is not named"
                )
                if row.leader_id >= 0:
                    self._leaders[row.partition_index] = brokers[row.leader_id]
            if partition not in self._leaders:
                await asyncio.sleep(RETRY_S)
        return self._leaders[partition]

    def forget_leader(self, partition: int) -> None:
        self._leaders.pop(partition, None)

    async def create_topic(self, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        rows = [CreatableTopicConfig(name, value) for name, value in configs.items()]
        topic = CreatableTopic(self._topic, partitions, replicas, [], rows)
        while True:
            answer = await self.ask_anyone(
                ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic], 5_000, False), 600
            )
            if answer.topics[0].error_code in (ErrorKind.NONE, ErrorKind.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(RETRY_S)

    async def move(self, topic: str, partition: int, replicas: list[int]) -> None:
        entry = ReassignableTopic(topic, [ReassignablePartition(partition, replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[entry])
        await self.ask_anyone(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)

    async def elect_preferred(self, topic: str, partition: int) -> None:
        request = ElectLeadersRequest(0, [TopicPartitions(topic, [partition])])
        await self.ask_anyone(ApiKey.ELECT_LEADERS, 2, request)

    async def ask_coordinator(
        self,
        identifier: str,
        kind: int,
        key: int,
        version: int,
        request: object,
        error_of: Callable[[Any], int],
        deadline: float,
    ) -> tuple[Any, ErrorKind]:
        """Ask until the answer is yes or a final no; Gone when there is none in time."""
        while _now() < deadline:
            where = await self.ask_anyone(
                ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(identifier, kind)
            )
            if where.error_code:
                await asyncio.sleep(RETRY_S)
                continue
            try:
                connection = await self.connection((where.host, where.port))
                answer = await connection.call(key, version, request, CALL_S)
            except PeerLost:
                await asyncio.sleep(RETRY_S)
                continue
            error = ErrorKind(error_of(answer))
            if error is ErrorKind.NONE or not error.info.retriable:
                return answer, error
            await asyncio.sleep(RETRY_S)
        raise Gone

    async def produce(
        self, partition: int, batch: bytes, deadline: float, transactional_id: str | None = None
    ) -> int:
        """The offset that was acknowledged with acks=all, or Gone."""
        while _now() < deadline:
            request = ProduceRequest(
                transactional_id,
                -1,
                3_000,
                [ProduceTopic(self._topic, ZERO_UUID, [ProducePartition(partition, bytearray(batch))])],
            )
            try:
                async with asyncio.timeout(max(0.001, deadline - _now())):
                    connection = await self.connection(await self.leader(partition))
                    body = encode_produce_request(request, 9)
                    frame, at = await connection.exchange(ApiKey.PRODUCE, 9, body, CALL_S)
            except (PeerLost, TimeoutError):
                self.forget_leader(partition)
                await asyncio.sleep(RETRY_S)
                continue
            row = decode_produce_response(frame, at, 9).topics[0].partitions[0]
            if row.error_code == 0:
                return row.base_offset
            kind = ErrorKind(row.error_code)
            if transactional_id is not None and kind in (*FENCED, *ABORTED):
                raise Gone
            if not kind.info.retriable:
                # Such an answer ends a real producer, so no leader may give it in error, not even one just replaced.
                raise Violation(f"partition {partition} answers {kind.name}: {row.error_message}")
            self.forget_leader(partition)
            await asyncio.sleep(RETRY_S)
        raise Gone

    async def fetch(self, partition: int, offset: int, wait_ms: int = 500) -> FetchPartitionResponse | None:
        """One fetch from the leader; None when it could not be had."""
        part = FetchPartition(partition, -1, offset, -1, -1, MIB)
        request = FetchRequest(
            -1, -1, wait_ms, 1, MIB, 1, 0, -1, [FetchTopic(self._topic, ZERO_UUID, [part])]
        )
        try:
            async with asyncio.timeout(CALL_S):
                connection = await self.connection(await self.leader(partition))
                body = encode_fetch_request(request, 11)
                frame, at = await connection.exchange(ApiKey.FETCH, 11, [body], CALL_S)
        except (PeerLost, TimeoutError, Gone):
            self.forget_leader(partition)
            return None
        row = decode_fetch_response(frame, at, 11).topics[0].partitions[0]
        if row.error_code == 0:
            return row
        if row.error_code == ErrorKind.OFFSET_OUT_OF_RANGE:
            raise Violation(f"partition {partition} ends before {offset}, which was read up to before")
        self.forget_leader(partition)
        return None


class Producer:
    """Sends one value at a time, each to a drawn partition; exactly once or not known."""

    def __init__(
        self, client: ClusterClient, history: OperationHistory, dice: Dice, number: int, partitions: int
    ) -> None:
        self._client = client
        self._history = history
        self._dice = dice
        self._process = number * 1_000
        self._name = f"p{number}"
        self._partitions = partitions
        self._sent = 0
        self.acked = 0

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            try:
                await self._life(until, pause_s)
            except Gone:
                self._process += 1

    async def _life(self, until: Callable[[], bool], pause_s: float) -> None:
        request = InitProducerIdRequest(None, 60_000)
        answer = await self._client.ask_anyone(ApiKey.INIT_PRODUCER_ID, 1, request)
        if answer.error_code:
            await asyncio.sleep(RETRY_S)
            raise Gone
        sequences = dict.fromkeys(range(self._partitions), 0)
        while not until():
            partition = self._dice.between(0, self._partitions - 1)
            count = self._dice.pick((1, 1, 1, 3))
            values = [f"{self._name}.{self._sent + index}" for index in range(count)]
            self._sent += count
            batch = _batch(values, answer.producer_id, 0, sequences[partition], transactional=False)
            sends = [Send(partition, value) for value in values]
            operation = self._history.invoke(self._process, "send", sends, now_ms=_now_ms())
            base = await self._client.produce(partition, batch, _now() + GIVE_UP_S)
            sequences[partition] += count
            self.acked += count
            self._history.complete(
                operation,
                OperationOutcome.OK,
                [Send(partition, value, base + index) for index, value in enumerate(values)],
                now_ms=_now_ms(),
            )
            await asyncio.sleep(self._dice.exponential(pause_s))


class TransactionalProducer:
    """Transactions over one to three partitions; some are aborted on purpose. One transactional id for ever."""

    def __init__(
        self,
        client: ClusterClient,
        history: OperationHistory,
        dice: Dice,
        number: int,
        partitions: int,
        topic: str,
    ) -> None:
        self._client = client
        self._history = history
        self._dice = dice
        self._process = number * 1_000
        self._id = f"t{number}"
        self._partitions = partitions
        self._topic = topic
        self._sent = 0
        self._producer = (-1, -1)
        self.committed = 0

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            try:
                await self._begin()
                while not until():
                    await self._transaction()
                    await asyncio.sleep(self._dice.exponential(pause_s))
            except Gone:
                self._process += 1
                await asyncio.sleep(RETRY_S)

    async def _ask(
        self, key: int, version: int, request: object, error_of: Callable[[Any], int], deadline: float
    ) -> Any:
        answer, error = await self._client.ask_coordinator(
            self._id, 1, key, version, request, error_of, deadline
        )
        if error is ErrorKind.NONE:
            return answer
        if error not in FENCED:
            raise Violation(f"{self._id} is told {error.name} in answer to {request}")
        raise Gone

    async def _begin(self) -> None:
        request = InitProducerIdRequest(self._id, 15_000)
        answer = await self._ask(
            ApiKey.INIT_PRODUCER_ID, 2, request, lambda got: got.error_code, _now() + GIVE_UP_S
        )
        self._producer = (answer.producer_id, answer.producer_epoch)
        self._sequences = dict.fromkeys(range(self._partitions), 0)

    async def _transaction(self) -> None:
        count = self._dice.between(1, min(3, self._partitions))
        partitions = sorted(self._dice.sample(range(self._partitions), count))
        sends = [
            Send(partition, f"{self._id}.{self._sent + index}") for index, partition in enumerate(partitions)
        ]
        self._sent += count
        await self.transact(sends, commit=not self._dice.chance(0.1), deadline=_now() + GIVE_UP_S)

    async def transact(
        self,
        sends: list[Send],
        *,
        commit: bool,
        deadline: float,
        besides: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """Gone when it was not ended in time; `besides` is done in the same transaction."""
        operation = self._history.invoke(self._process, "txn", sends, now_ms=_now_ms())
        asked = False
        try:
            partitions = sorted({int(str(send.key)) for send in sends})
            added = AddPartitionsToTxnRequest(
                [], self._id, *self._producer, [AddPartitionsToTxnTopic(self._topic, partitions)]
            )
            await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 1, added, _first_error, deadline)
            done = []
            for send in sends:
                partition = int(str(send.key))
                batch = _batch(
                    [str(send.value)], *self._producer, self._sequences[partition], transactional=True
                )
                offset = await self._client.produce(partition, batch, deadline, self._id)
                self._sequences[partition] += 1
                done.append(send._replace(offset=offset))
            if besides is not None:
                await besides(deadline)
            asked = commit
            ended = EndTxnRequest(self._id, *self._producer, commit)
            await self._ask(ApiKey.END_TXN, 1, ended, lambda got: got.error_code, deadline)
        except Gone:
            # Nobody has asked for a commit: this can't happen any more, whoever retries what.
            self._history.complete(
                operation, OperationOutcome.INFO if asked else OperationOutcome.FAIL, now_ms=_now_ms()
            )
            raise
        self.committed += commit
        self._history.complete(
            operation, OperationOutcome.OK if commit else OperationOutcome.FAIL, done, now_ms=_now_ms()
        )


class OffsetKeeper:
    """Commits rising offsets for a group and asks for them again: they may never go back (R21, R53)."""

    def __init__(self, client: ClusterClient, dice: Dice, partitions: int, topic: str) -> None:
        self._client = client
        self._dice = dice
        self._partitions = partitions
        self._topic = topic
        self.acknowledged = dict.fromkeys(range(partitions), -1)
        self._next = 0

    async def run(self, until: Callable[[], bool], pause_s: float) -> None:
        while not until():
            partition = self._dice.between(0, self._partitions - 1)
            try:
                await self._commit(partition)
                if self._dice.chance(0.5):
                    await self._look(partition)
            except Gone:
                pass
            await asyncio.sleep(self._dice.exponential(pause_s))

    async def _commit(self, partition: int) -> None:
        self._next += 1
        rows = [OffsetCommitRequestPartition(partition, self._next, -1, "")]
        request = OffsetCommitRequest(
            GROUP, -1, "", None, -1, [OffsetCommitRequestTopic(self._topic, ZERO_UUID, rows)]
        )
        _, error = await self._client.ask_coordinator(
            GROUP, 0, ApiKey.OFFSET_COMMIT, 7, request,
            lambda got: got.topics[0].partitions[0].error_code, _now() + GIVE_UP_S,
        )  # fmt: skip
        if error is not ErrorKind.NONE:
            raise Violation(f"a commit of offsets was answered with {error.name}")
        self.acknowledged[partition] = self._next

    async def _look(self, partition: int) -> None:
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(self._topic, [partition])], [], True)
        answer, error = await self._client.ask_coordinator(
            GROUP, 0, ApiKey.OFFSET_FETCH, 7, request,
            lambda got: got.error_code or got.topics[0].partitions[0].error_code, _now() + GIVE_UP_S,
        )  # fmt: skip
        if error is not ErrorKind.NONE:
            raise Violation(f"a question for offsets was answered with {error.name}")
        found = answer.topics[0].partitions[0].committed_offset
        if not self.acknowledged[partition] <= found <= self._next:
            raise Violation(
                f"R53: {self.acknowledged[partition]} was committed for {partition}, and {found} is there"
            )


class Consumer:
    """Reads every partition in order, read_committed, and remembers where it was."""

    def __init__(
        self, client: ClusterClient, history: OperationHistory, number: int, partitions: int
    ) -> None:
        self._client = client
        self._history = history
        self._process = number * 1_000
        self._partitions = partitions
        self.positions = dict.fromkeys(range(partitions), 0)
        self.values: list[str] = []

    def assign(self) -> None:
        operation = self._history.invoke(
            self._process, "assign", keys=range(self._partitions), now_ms=_now_ms()
        )
        self._history.complete(operation, OperationOutcome.OK, now_ms=_now_ms())

    async def run(self, until: Callable[[], bool]) -> None:
        self.assign()
        while not until():
            for partition in range(self._partitions):
                await self.poll(partition)
            await asyncio.sleep(PAUSE_S)

    async def poll(self, partition: int) -> FetchPartitionResponse | None:
        operation = self._history.invoke(self._process, "poll", now_ms=_now_ms())
        row = await self._client.fetch(partition, self.positions[partition])
        records: list[tuple[int, str]] = []
        if row is not None:
            records, self.positions[partition] = _committed(row, self.positions[partition])
            self.values += (value for _, value in records)
        self._history.complete(
            operation, OperationOutcome.OK, [Poll({partition: records} if records else {})], now_ms=_now_ms()
        )
        return row

    async def read_past(self, ends: dict[int, int]) -> None:
        """Until every partition was read to its end; a new leader may need a moment to know what is committed (R19)."""
        self.assign()
        for partition, end in sorted(ends.items()):
            while self.positions[partition] < end:
                if await self.poll(partition) is None:
                    await asyncio.sleep(RETRY_S)


def _batch(values: list[str], producer_id: int, epoch: int, sequence: int, *, transactional: bool) -> bytes:
    return build_batch(
        [Record(None, value.encode()) for value in values],
        wall_ms=WALL_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def _committed(row: FetchPartitionResponse, position: int) -> tuple[list[tuple[int, str]], int]:
    """The records a read_committed client hands out: those of aborted transactions are left out (R48)."""
    data = bytes(row.records or b"")  # type: ignore[arg-type]
    aborted = sorted(row.aborted_transactions or (), key=lambda entry: entry.first_offset)
    active: set[int] = set()
    found: list[tuple[int, str]] = []
    for at, header in scan(data):
        while aborted and aborted[0].first_offset <= header.last_offset:
            active.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_control(data, at)
            if marker is not None and not marker.commit:
                active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            found += [
                (record.offset, (record.value or b"").decode())
                for record in read_records(data, at, max_bytes=MIB)
                if record.offset >= position
            ]
        position = max(position, header.next_offset)
    return found, position


def _first_error(answer: Any) -> int:
    for topic in answer.results_by_topic_v3_and_below:
        for row in topic.results_by_partition:
            if row.partition_error_code:
                return int(row.partition_error_code)
    return 0


def _now() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return int(_now() * 1000)
