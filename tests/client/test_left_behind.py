"""A4 through the door: what a client can leave behind is counted, and over the limit it hears the API's own error (F21)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import RawClient

from headrace.core import limits
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.client

INVALID = ErrorKind.INVALID_REQUEST.kafka_code


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.kafka_port, 60) as found:
        yield found


def fetch(client: RawClient, topic: str, partitions: range, session: int = 0, epoch: int = 0) -> Any:
    rows = [FetchPartition(number, -1, 0, -1, -1, 1) for number in partitions]
    topics = [FetchTopic(topic, ZERO_UUID, rows)] if rows else []
    return client.call(ApiKey.FETCH, 11, FetchRequest(-1, -1, 0, 0, 1, 0, session, epoch, topics))


def test_no_session_remembers_what_does_not_exist_f21(client: RawClient, topic: str) -> None:
    """Two million partitions of a topic that never was outlived the connection that asked for them."""
    client.create_topic(topic, 2)
    found = fetch(client, topic, range(2))
    assert found.session_id > 0
    refused = fetch(client, topic, range(2, 3), found.session_id, 1)
    assert refused.error_code == ErrorKind.FETCH_SESSION_ID_NOT_FOUND.kafka_code
    whole = fetch(client, topic, range(3))
    assert whole.session_id == 0
    assert [row.error_code for row in whole.topics[0].partitions] == [0, 0, 3]


def test_a_session_ends_with_its_connection_f21(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    client.create_topic(topic, 2)
    with RawClient(broker.kafka_port) as other:
        session = fetch(other, topic, range(2)).session_id
        assert fetch(client, "", range(0), session, 1).error_code == 0
    missing = ErrorKind.FETCH_SESSION_ID_NOT_FOUND.kafka_code
    epoch = 2
    while (code := fetch(client, "", range(0), session, epoch).error_code) != missing:
        assert code == 0
        epoch += 1


def coordinator_of(client: RawClient, key: str, kind: int) -> None:
    while client.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key, kind)).error_code:
        pass


def join(client: RawClient, group: str, size: int, version: int = 3) -> int:
    """The error code. Version 3 needs no second round for a member id."""
    request = JoinGroupRequest(
        group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"x" * size)]
    )
    code: int = client.call(ApiKey.JOIN_GROUP, version, request).error_code
    return code


def ready_join(client: RawClient, group: str, size: int) -> int:
    loading = {ErrorKind.COORDINATOR_LOAD_IN_PROGRESS.kafka_code, ErrorKind.NOT_COORDINATOR.kafka_code}
    while (code := join(client, group, size)) in loading:
        pass
    return code


def test_a_member_says_64_kib_at_most_f21(client: RawClient, topic: str) -> None:
    """Twenty members with ten megabytes each were kept, and journaled at each rebalance."""
    coordinator_of(client, topic, 0)
    assert ready_join(client, topic, limits.MAX_PROTOCOL_METADATA_BYTES) == 0
    assert join(client, topic + "-2", limits.MAX_PROTOCOL_METADATA_BYTES + 1) == INVALID


def test_a_subscription_says_64_kib_at_most_f21(client: RawClient, topic: str) -> None:
    coordinator_of(client, topic, 0)
    names = [f"{number:05}" + "x" * 200 for number in range(400)]
    request = ConsumerGroupHeartbeatRequest(topic, "m", 0, None, None, 1000, names, None, None, [])
    found = client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, request)
    assert found.error_code == INVALID and str(limits.MAX_PROTOCOL_METADATA_BYTES) in found.error_message


def test_names_of_groups_and_transactions_are_bounded_f21(client: RawClient, topic: str) -> None:
    coordinator_of(client, topic, 0)
    coordinator_of(client, topic, 1)
    long = "x" * (limits.MAX_NAME_BYTES + 1)
    assert join(client, long, 1) == ErrorKind.INVALID_GROUP_ID.kafka_code
    assert client.call(ApiKey.INIT_PRODUCER_ID, 3, InitProducerIdRequest(long, 1000)).error_code == INVALID


def quotas(count: int, prefix: str) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        [
            EntryData(
                [EntityData("client-id", f"{prefix}{number}")], [OpData("producer_byte_rate", 1e9, False)]
            )
            for number in range(count)
        ],
        False,
    )


def test_quotas_are_counted_f21(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """Twenty thousand in one call took 23 CPU seconds: each was a transaction, after which all were read again."""
    with RawClient(fresh_broker().kafka_port, 120) as client:
        first = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, quotas(3_000, "a"))
        assert {row.error_code for row in first.entries} == {0}
        second = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, quotas(3_000, "b"))
        codes = [row.error_code for row in second.entries]
        assert codes.count(0) == limits.MAX_QUOTA_ENTITIES - 3_000
        assert set(codes) == {0, ErrorKind.POLICY_VIOLATION.kafka_code}
        assert str(limits.MAX_QUOTA_ENTITIES) in second.entries[-1].error_message


def test_one_request_makes_a_bounded_number_of_partitions_f21(client: RawClient, topic: str) -> None:
    """Ten thousand partitions took forty bytes."""
    most = limits.MAX_NEW_PARTITIONS_PER_REQUEST
    asked = CreateTopicsRequest([CreatableTopic(topic, 1, 1), CreatableTopic(topic + "-wide", most, 1)])
    rows = client.call(ApiKey.CREATE_TOPICS, 5, asked).topics
    assert [row.error_code for row in rows] == [0, ErrorKind.POLICY_VIOLATION.kafka_code]
    assert str(most) in rows[1].error_message


def test_names_make_a_bounded_number_of_topics_f21(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """Two thousand new names in one Metadata kept the broker busy for two minutes. The rest is made when it is asked for
    again: the error is one that every client retries."""
    with RawClient(fresh_broker(arguments=("--ephemeral",)).kafka_port, 120) as client:
        names = [MetadataRequestTopic(name=f"t{number}") for number in range(5_000)]
        codes = [
            row.error_code for row in client.call(ApiKey.METADATA, 9, MetadataRequest(names, True)).topics
        ]
        assert codes.count(0) == limits.AUTO_CREATED_PER_REQUEST
        assert codes.count(ErrorKind.LEADER_NOT_AVAILABLE.kafka_code) == 5_000 - codes.count(0)
