"""A3, A4 through the door: what a request may cost is bounded before it is decoded, and what is allowed is cut into slices."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from largest_requests import Broker, Case, cases
from raw_client import RawClient

from headrace.core import limits
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import API, ApiKey
from headrace.wire.codec import encode
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.metadata import MetadataRequest
from headrace.wire.produce import ProducePartition, ProduceRequest, ProduceTopic

pytestmark = pytest.mark.client

PARTITIONS = 600
ONE_DECISION = {
    "LeaveGroup",
    "SyncGroup",
    "ListGroups",
    "AddPartitionsToTxn",
    "DeleteRecords",
    "OffsetDelete",
    "ListPartitionReassignments",
    "OffsetFetch of everything",
}
"""What a coordinator decides in one go by its nature, or what is small here; their cost is in bench/largest_requests.py."""
PER_PARTITION = {"DescribeLogDirs", "DescribeProducers"}
"""Their work is on the broker's partitions, or on each that is named; names are repeated here."""
CASES = cases(PARTITIONS, 0)


@pytest.fixture(scope="module")
def inside() -> Iterator[tuple[Broker, int]]:
    broker = Broker()
    yield broker, broker.prepare(PARTITIONS)
    broker.close()


class Steps(Coroutine[Any, Any, Any]):
    """A coroutine, and how often it has given the loop away: what it does in between keeps everybody else waiting."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self.count = 0

    def send(self, value: Any) -> Any:
        self.count += 1
        return self._work.send(value)

    def throw(self, *problem: Any) -> Any:
        self.count += 1
        return self._work.throw(*problem)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        raise NotImplementedError


def counting_tasks(loop: asyncio.AbstractEventLoop) -> list[Steps]:
    """Every task that is made from now on."""
    made: list[Steps] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(Steps(work))
        return asyncio.Task(made[-1], loop=loop, **options)

    loop.set_task_factory(factory)
    return made


def exchange(client: RawClient, case: Case) -> bytes:
    client.send(case.key, case.version, case.request())
    return client.read_frame()


@pytest.mark.parametrize("name", sorted(CASES.keys() - ONE_DECISION - {"AlterClientQuotas"}))
def test_the_largest_request_is_answered_in_slices_f20(inside: tuple[Broker, int], name: str) -> None:
    """A3: whoever works on it gives the loop away at least once for every 200 entries; it used to be one step."""
    broker, producer_id = inside
    case = cases(PARTITIONS, producer_id)[name]
    with RawClient(broker.node.kafka_port, 60) as client:
        made = counting_tasks(broker.loop)
        exchange(client, case)
        broker.loop.set_task_factory(None)
    entries = min(case.entries, PARTITIONS) if name in PER_PARTITION else case.entries
    assert max(steps.count for steps in made) >= entries // limits.SLICE_ENTRIES


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"Metadata of everything", "OffsetFetch of everything"})
)
def test_an_entry_more_than_the_limit_is_refused_f20(broker: BrokerProcess, name: str) -> None:
    """With the API's own error where it has one for all of a request, else the connection is closed; nothing is decoded
    beyond the limit, nothing is carried out."""
    case = CASES[name]
    frame = encode(case.request(), case.version)
    huge = grown(frame, case)
    with RawClient(broker.kafka_port) as client:
        client.socket.sendall(client.frame(case.key, case.version, huge))
        try:
            answer = client.answer(case.key, case.version)
        except ConnectionError:
            return
    assert answer.error_code == ErrorKind.INVALID_REQUEST.kafka_code, API[case.key].name


def grown(frame: bytes, case: Case) -> bytes:
    """The same request with a hundred times its innermost list: the count is what is refused, the bytes are there."""
    import largest_requests

    kept = largest_requests.ENTRIES, largest_requests.NAMES, limits.MAX_REQUEST_PARTITIONS
    try:
        largest_requests.ENTRIES, largest_requests.NAMES = 2 * kept[0], 6 * kept[1]
        limits.MAX_REQUEST_PARTITIONS = 2 * kept[2]
        name = next(name for name, known in CASES.items() if known is case)
        return encode(cases(PARTITIONS, 0)[name].request(), case.version)
    finally:
        largest_requests.ENTRIES, largest_requests.NAMES, limits.MAX_REQUEST_PARTITIONS = kept


def test_a_million_one_letter_names_are_refused_and_the_broker_goes_on_f20(broker: BrokerProcess) -> None:
    """The frame of the finding: 3 MB of group names stopped the loop for 9 CPU seconds and took 1.15 GB."""
    body = struct.pack(">i", 1_000_000) + b"\x00\x01!" * 1_000_000
    with RawClient(broker.kafka_port) as client:
        client.socket.sendall(client.frame(ApiKey.DESCRIBE_GROUPS, 0, body))
        assert client.is_closed_by_broker()
    with RawClient(broker.kafka_port) as client:
        assert client.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers


def test_tagged_fields_count_as_entries_f20(broker: BrokerProcess) -> None:
    """A thousand tags are allowed in one place, but not in each of ten thousand."""
    tags = b"\x7f" + b"".join(bytes([number, 0]) for number in range(127))
    topics = b"\xe9\x07" + (bytes(16) + b"\x00" + tags) * 1000  # Metadata v12: 1,000 topics by id
    with RawClient(broker.kafka_port) as client:
        client.socket.sendall(client.frame(ApiKey.METADATA, 12, topics + b"\x00\x00\x00"))
        assert client.is_closed_by_broker()


def test_only_produce_may_be_large_f20(broker: BrokerProcess) -> None:
    """Frames of all other APIs end at 4 MiB, seen from the first six bytes."""
    with RawClient(broker.kafka_port) as client:
        client.socket.sendall(struct.pack(">ih", limits.MAX_REQUEST_BYTES + 1, ApiKey.METADATA))
        assert client.is_closed_by_broker()
    with RawClient(broker.kafka_port) as client:
        client.socket.sendall(struct.pack(">ih", limits.MAX_REQUEST_BYTES + 1, ApiKey.PRODUCE))
        assert not client.is_closed_by_broker(0.5)


def test_more_groups_than_may_be_described_have_an_error_each_f20(broker: BrokerProcess) -> None:
    """Where the API has a place for an error per entry, the client hears what the limit is."""
    names = [f"g{number}" for number in range(limits.MAX_NAMES_DESCRIBED + 1)]
    with RawClient(broker.kafka_port) as client:
        answer = client.call(ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(names))
    assert {group.error_code for group in answer.groups} == {ErrorKind.INVALID_REQUEST.kafka_code}
    assert str(limits.MAX_NAMES_DESCRIBED) in answer.groups[0].error_message


def test_a_repeated_name_is_answered_once_f20(broker: BrokerProcess, topic: str) -> None:
    """Or ten thousand times one topic of ten thousand partitions would be an answer of a hundred million rows."""
    from headrace.wire.messages.metadata import MetadataRequestTopic

    with RawClient(broker.kafka_port) as client:
        client.create_topic(topic, 3)
        asked = [MetadataRequestTopic(name=topic) for _ in range(5000)]
        assert len(client.call(ApiKey.METADATA, 9, MetadataRequest(asked)).topics) == 1


def test_a_wide_produce_and_fetch_carry_everything_f20(inside: tuple[Broker, int]) -> None:
    """Slices must not lose, repeat or mix up partitions."""
    from headrace.records.build import Record, build_batch

    broker, _ = inside
    with RawClient(broker.node.kafka_port, 60) as client:
        client.create_topic("wide-data", PARTITIONS)
        rows = [
            ProducePartition(number, build_batch([Record(b"%d" % number, b"v")], wall_ms=0))
            for number in range(PARTITIONS)
        ]
        request = ProduceRequest(None, -1, 30_000, [ProduceTopic("wide-data", ZERO_UUID, rows)])
        answer = client.call(ApiKey.PRODUCE, 9, request)
        assert [(row.partition, row.error_code, row.base_offset) for row in answer.topics[0].partitions] == [
            (number, 0, 0) for number in range(PARTITIONS)
        ]
        wanted = [FetchPartition(number, -1, 0, -1, -1, 1 << 20) for number in range(PARTITIONS)]
        for wait_ms in (0, 5_000):
            asked = FetchRequest(
                -1, -1, wait_ms, 1, 1 << 25, 0, 0, 0, [FetchTopic("wide-data", ZERO_UUID, wanted)]
            )
            got = client.call(ApiKey.FETCH, 11, asked)
            found = {row.partition: bytes(row.records) for row in got.topics[0].partitions}
            assert all(b"%d" % number in found[number] for number in range(PARTITIONS))


def test_a_parked_wide_fetch_hears_of_news_f20(inside: tuple[Broker, int]) -> None:
    from headrace.records.build import Record, build_batch

    broker, _ = inside
    with RawClient(broker.node.kafka_port, 60) as reader, RawClient(broker.node.kafka_port, 60) as writer:
        writer.create_topic("wide-news", PARTITIONS)
        wanted = [FetchPartition(number, -1, 0, -1, -1, 1 << 20) for number in range(PARTITIONS)]
        topics = [FetchTopic("wide-news", ZERO_UUID, wanted)]
        reader.send(ApiKey.FETCH, 11, FetchRequest(-1, -1, 50_000, 1, 1 << 25, 0, 0, -1, topics))
        # The connection goes on while its fetch is parked, so this answer is due; it comes after the fetch's.
        reader.send(ApiKey.METADATA, 9, MetadataRequest([]))
        writer.produce("wide-news", build_batch([Record(b"k", b"v")], wall_ms=0), partition=PARTITIONS - 1)
        got = reader.answer(ApiKey.FETCH, 11)
        assert [row.partition for row in got.topics[0].partitions if row.records] == [PARTITIONS - 1]
        assert reader.answer(ApiKey.METADATA, 9).brokers
