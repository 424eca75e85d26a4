"""F34: what one broker has answered, every broker knows: at once, fifteen times out of fifteen, without a retry.

Two and three brokers on one SQLite coordinator, whose watch looks a few times a second: whoever trusts it is late.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from headrace.core.errors import ErrorKind
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports
from headrace.wire.api import ApiKey
from headrace.wire.messages.delete_topics import DeleteTopicsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from raw_client import RawClient
from test_rest import Got, ask

pytestmark = pytest.mark.client

TIMES = 15
FEW = 5
"""Where one turn makes several things."""


@pytest.fixture(scope="module", params=[2, 3], ids=["two brokers", "three brokers"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BrokerProcess]]:
    root = tmp_path_factory.mktemp("known")
    brokers: list[BrokerProcess] = []
    try:
        for number in range(1, request.param + 1):
            environment = {
                "HEADRACE_NODE_ID": str(number),
                "HEADRACE_COORDINATOR": f"sqlite://{root}/coordinator.db",
                "HEADRACE_DEFAULT_REPLICATION_FACTOR": str(request.param),
                "HEADRACE_AUTO_CREATE_TOPICS": "false",
                "HEADRACE_WEBHOOK_ALLOW_HTTP": "true",
                "HEADRACE_WEBHOOK_NETWORKS": "127.0.0.0/8",
                "HEADRACE_WEBHOOK_PORTS": "any",
            }
            broker = BrokerProcess(root / f"b{number}", environment=environment, start_seconds=60)
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def sqs(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )


def elsewhere(cluster: list[BrokerProcess], turn: int) -> tuple[BrokerProcess, BrokerProcess]:
    """Who is told, and who is asked."""
    return cluster[turn % len(cluster)], cluster[(turn + 1) % len(cluster)]


def test_f34_a_queue_is_known_at_every_broker_when_create_queue_has_answered(
    cluster: list[BrokerProcess],
) -> None:
    clients = [sqs(broker) for broker in cluster]
    for turn in range(TIMES):
        maker, *others = clients[turn % len(cluster) :] + clients[: turn % len(cluster)]
        url = maker.create_queue(QueueName=f"q{turn}")["QueueUrl"]
        for number, other in enumerate(others):
            if number == 0:
                other.send_message(QueueUrl=url, MessageBody="hello")
            elif turn % 2:
                assert any(found.endswith(f"/q{turn}") for found in other.list_queues()["QueueUrls"])
            else:
                other.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
        (message,) = others[-1].receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        maker.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_f34_a_dead_letter_queue_is_known_where_it_is_named(cluster: list[BrokerProcess]) -> None:
    for turn in range(FEW):
        here, there = elsewhere(cluster, turn)
        sqs(here).create_queue(QueueName=f"dead{turn}")
        policy = {
            "deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:dead{turn}",
            "maxReceiveCount": "3",
        }
        sqs(there).create_queue(QueueName=f"live{turn}", Attributes={"RedrivePolicy": json.dumps(policy)})


def test_f34_queues_topics_subscriptions_webhooks_and_schedules_over_rest(
    cluster: list[BrokerProcess],
) -> None:
    """Each is made at one broker and used at another, which is asked once."""

    def done(got: Got) -> None:
        assert got.status in (200, 201, 204), got.body

    for turn in range(FEW):
        here, there = elsewhere(cluster, turn)
        topic, queue = f"r{turn}", f"r{turn}-q"
        done(ask(here, "POST", "/api/v1/topics", {"name": topic, "partitions": 2}))
        done(ask(there, "GET", f"/topics/{topic}/records"))
        done(ask(here, "POST", "/api/v1/queues", {"name": queue}))
        done(ask(there, "POST", f"/queues/{queue}/receive"))
        done(ask(there, "POST", "/api/v1/subscriptions", {"name": f"{topic}-s", "topics": [topic]}))
        done(ask(here, "POST", f"/queues/{topic}-s/receive"))
        hook = {"name": f"{topic}-h", "queue": queue, "url": "http://127.0.0.1:9/", "confirm": False}
        made = ask(here, "POST", "/api/v1/webhooks", hook)
        if made.status == 400 and "confirm" in str(made.body):
            hook.pop("confirm")
            made = ask(here, "POST", "/api/v1/webhooks", hook)
        done(made)
        done(ask(there, "DELETE", f"/api/v1/webhooks/{topic}-h"))
        schedule = {"name": f"{topic}-c", "cron": "0 0 1 1 *", "topic": topic, "value": "x"}
        done(ask(here, "POST", "/api/v1/schedules", schedule))
        done(ask(there, "DELETE", f"/api/v1/schedules/{topic}-c"))
        listed = ask(here, "GET", "/api/v1/topics?limit=1000&fields=name").body["items"]
        assert topic in [row["name"] for row in listed]


def test_f34_a_view_is_read_at_another_broker_as_soon_as_it_is_made(cluster: list[BrokerProcess]) -> None:
    for turn in range(FEW):
        here, there = elsewhere(cluster, turn)
        admin = AdminClient({"bootstrap.servers": here.bootstrap, "log_level": 0})
        source, view = f"v{turn}", f"v{turn}-view"
        admin.create_topics([NewTopic(source, 1)])[source].result(20)
        sent = ask(there, "POST", f"/topics/{source}/records?tag=eu", b"1")
        assert sent.status == 201, sent.body
        config = {"headrace.view.source": source, "headrace.view.where": '{"tag": ["eu"]}'}
        admin.create_topics([NewTopic(view, -1, -1, config=config)])[view].result(20)
        got = ask(there, "GET", f"/topics/{view}/records")
        assert got.status == 200, got.body


def _error(raw: RawClient, turn: int, name: str) -> int:
    """What one question about a topic is answered with; by turns."""
    if turn % 4 == 0:
        asked = MetadataRequest([MetadataRequestTopic(name=name)])
        return int(raw.call(ApiKey.METADATA, 12, asked).topics[0].error_code)
    if turn % 4 == 1:
        offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)])])
        return int(raw.call(ApiKey.LIST_OFFSETS, 5, offsets).topics[0].partitions[0].error_code)
    if turn % 4 == 2:
        configs = DescribeConfigsRequest([DescribeConfigsResource(2, name)])
        return int(raw.call(ApiKey.DESCRIBE_CONFIGS, 1, configs).results[0].error_code)
    described = DescribeTopicPartitionsRequest([TopicRequest(name)])
    return int(raw.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, described).topics[0].error_code)


def test_f34_the_kafka_door_knows_a_topic(cluster: list[BrokerProcess]) -> None:
    """Raw frames to one broker: no client is there to ask again."""
    for turn in range(TIMES):
        here, there = elsewhere(cluster, turn)
        name = f"k{turn}"
        with RawClient(here.kafka_port) as maker, RawClient(there.kafka_port) as raw:
            maker.create_topic(name)
            # Who leads it is another matter.
            assert _error(raw, turn, name) in (ErrorKind.NONE, ErrorKind.NOT_LEADER_OR_FOLLOWER), turn


def test_f34_a_name_is_free_everywhere_when_its_topic_was_deleted(cluster: list[BrokerProcess]) -> None:
    """Deleted at one broker and made again at another, which has known it: in 30 minutes of torture two lives of a topic were
    refused as "already there" by a broker that had not heard of the end of the life before."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.kafka_port)) for broker in cluster]
        clients[-1].create_topic("phoenix")
        for turn in range(TIMES):
            here, there = clients[turn % len(clients)], clients[(turn + 1) % len(clients)]
            for client in (here, there):
                known = client.call(
                    ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="phoenix")])
                )
                assert known.topics[0].error_code == ErrorKind.NONE
            gone = here.call(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=["phoenix"]))
            assert gone.responses[0].error_code == ErrorKind.NONE
            there.create_topic("phoenix")


def test_f34_a_name_is_free_everywhere_when_its_webhook_was_removed(cluster: list[BrokerProcess]) -> None:
    assert ask(cluster[0], "POST", "/api/v1/queues", {"name": "hooked"}).status == 201
    hook = {"name": "phoenix", "queue": "hooked", "url": "http://127.0.0.1:9/"}
    assert ask(cluster[-1], "POST", "/api/v1/webhooks", hook).status == 201
    for turn in range(FEW):
        here, there = elsewhere(cluster, turn)
        for broker in (here, there):
            assert ask(broker, "GET", "/api/v1/webhooks/phoenix").status == 200
        assert ask(here, "DELETE", "/api/v1/webhooks/phoenix").status in (200, 204)
        made = ask(there, "POST", "/api/v1/webhooks", hook)
        assert made.status == 201, made.body


def test_f34_a_config_set_at_one_broker_is_shown_by_another(cluster: list[BrokerProcess]) -> None:
    name = "configured"
    admin = AdminClient({"bootstrap.servers": cluster[0].bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    for turn in range(TIMES):
        here, there = elsewhere(cluster, turn)
        entry = ConfigEntry(
            "retention.ms", str(1_000_000 + turn), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": here.bootstrap, "log_level": 0})
        admin.incremental_alter_configs([resource])[resource].result(20)
        with RawClient(there.kafka_port) as raw:
            asked = DescribeConfigsRequest([DescribeConfigsResource(2, name, ["retention.ms"])])
            (row,) = raw.call(ApiKey.DESCRIBE_CONFIGS, 1, asked).results[0].configs
            assert row.value == str(1_000_000 + turn)


def test_f34_a_name_that_nobody_has_made_is_refused_as_ever(cluster: list[BrokerProcess]) -> None:
    client = sqs(cluster[0])
    for _ in range(TIMES):
        with pytest.raises(ClientError) as refused:
            client.get_queue_url(QueueName="nobody-has-made-this")
        assert refused.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert ask(cluster[0], "GET", "/topics/nobody-has-made-this/records").status == 404
