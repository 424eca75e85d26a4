"""A15, A17, A21, A33, A44, A47, A48, A51: rules of security, each through the door it is about: frames, requests, commands."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from raw_client import RawClient
from raw_login import PLAIN, SCRAM, authenticate, bare, log_in, scram, shake
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.failure import Exit
from headrace.kafka.operations import NOT_ASKED
from headrace.security.rights import Operation
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.describe_cluster import DescribeClusterRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.client

WORD = "a word"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess(arguments=("--allow-plain-without-tls",)) as running:
        yield Secured(running)


def open_client(secured: Secured) -> RawClient:
    return RawClient(secured.broker.kafka_port)


def client_of(secured: Secured, user: str, password: str = WORD) -> RawClient:
    client = open_client(secured)
    log_in(client, user, password)
    return client


def headrace(broker: BrokerProcess, *words: str, user: str = ADMIN, code: int = 0, **more: str) -> str:
    environment = {
        **os.environ, "HEADRACE_URL": broker.url, "HEADRACE_BOOTSTRAP": broker.bootstrap, **more,
    }  # fmt: skip
    if user:
        environment |= {"HEADRACE_USER": user, "HEADRACE_PASSWORD": PASSWORD if user == ADMIN else WORD}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], env=environment, text=True, capture_output=True, timeout=120
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


# -- logging in ------------------------------------------------------------------------------------------------------------


def test_a15_tokens_without_headers_after_a_handshake_of_version_0(secured: Secured, topic: str) -> None:
    user = secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    with closing(open_client(secured).socket):
        client = open_client(secured)
        assert shake(client, version=0).error_code == 0
        assert scram(lambda token: bare(client, token), user, WORD).startswith(b"v=")
        answer = client.call(ApiKey.METADATA, 9, MetadataRequest([MetadataRequestTopic(name=topic)]))
        assert answer.topics[0].error_code == 0
    wrong = open_client(secured)
    assert shake(wrong, version=0).error_code == 0
    with pytest.raises(ConnectionError):
        scram(lambda token: bare(wrong, token), user, "another")


def test_a21_a_second_handshake_proves_the_same_user_again_and_no_other(secured: Secured) -> None:
    user, other = secured.user(), secured.user()
    client = client_of(secured, user)
    for _ in range(3):
        log_in(client, user, WORD)
    assert client.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1")).error_code == 0
    assert shake(client, PLAIN).error_code == 33, "the mechanism stays"
    assert shake(client).error_code == 0
    with pytest.raises(AssertionError, match="error_code=58"):
        log_in(client, other, WORD)
    assert client.is_closed_by_broker()


def test_a21_nothing_else_is_heard_between_handshake_and_the_last_token(secured: Secured) -> None:
    client = client_of(secured, secured.user())
    assert shake(client).error_code == 0
    client.send(ApiKey.METADATA, 9, MetadataRequest([]))
    assert client.is_closed_by_broker()


def test_a17_a14_who_is_not_done_logging_in_is_closed_and_not_told_that_the_password_is_wrong(
    secured: Secured,
) -> None:
    client = open_client(secured)
    assert authenticate(client, b"x").error_code == 34, "SaslHandshake comes first"
    client.send(ApiKey.METADATA, 9, MetadataRequest([]))
    assert client.is_closed_by_broker()


def test_a33_a_user_that_protects_nothing_yet_says_so(fresh_broker: Callable[..., BrokerProcess]) -> None:
    broker = fresh_broker()
    word: dict[str, Any] = {"HEADRACE_NEW_PASSWORD": WORD}
    said = headrace(broker, "user", "create", "alice", user="", **word)
    assert "authentication is off: this user protects nothing yet" in said
    headrace(broker, "user", "create", ADMIN, "--super", user="", HEADRACE_NEW_PASSWORD=PASSWORD)
    headrace(broker, "security", "observe", user="")
    assert "protects nothing" not in headrace(broker, "user", "create", "bob", **word)


# -- rights ----------------------------------------------------------------------------------------------------------------


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def test_a47_authorised_operations_are_those_that_one_has(secured: Secured, topic: str) -> None:
    user = secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    secured.allow(user, AclOperation.CREATE, ResourceType.BROKER, "kafka-cluster")
    client = client_of(secured, user)
    named = [MetadataRequestTopic(name=topic)]
    asked = MetadataRequest(
        named, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    answer = client.call(ApiKey.METADATA, 9, asked)
    assert answer.topics[0].topic_authorized_operations == bits(Operation.READ, Operation.DESCRIBE)
    assert answer.cluster_authorized_operations == 0, "it may not describe the cluster"
    answer = client.call(ApiKey.METADATA, 9, MetadataRequest(named))
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED
    cluster = client.call(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(True))
    assert cluster.cluster_authorized_operations == 0
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.BROKER, "kafka-cluster")
    cluster = client.call(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(True))
    assert cluster.cluster_authorized_operations == bits(Operation.CREATE, Operation.DESCRIBE)
    assert client.call(ApiKey.METADATA, 9, asked).cluster_authorized_operations == bits(
        Operation.CREATE, Operation.DESCRIBE
    )


def test_a48_only_explain_says_which_rule(secured: Secured, topic: str) -> None:
    user = secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    said = headrace(secured.broker, "acl", "explain", user, "read", "topic", topic)
    assert f"User:{user} may Read Topic {topic}" in said
    said = headrace(secured.broker, "acl", "explain", user, "write", "topic", topic, code=Exit.DENIED)
    assert "no right allows it" in said and "write" in said.lower()
    status, answer = secured.http(
        "POST", f"/api/v1/topics/{topic}/records", {"value": "x"}, user=user, password=WORD
    )
    assert status in (403, 404) and "User:" not in str(answer), answer


def test_a54_suggest_writes_the_commands_and_copy_gives_them_to_another(secured: Secured, topic: str) -> None:
    user, other = secured.user(), secured.user()
    secured.topic(topic)

    def writes(who: str) -> bool:
        return bool(
            secured.http("POST", f"/topics/{topic}/records", {"value": "x"}, user=who, password=WORD)[0] < 300
        )

    assert not writes(user)
    said = headrace(secured.broker, "acl", "suggest", "--user", user)
    (command,) = [line for line in said.splitlines() if topic in line and " write " in line]
    words = command.split()
    assert words[:6] == ["headrace", "acl", "add", user, "write", "topic"]
    headrace(secured.broker, *words[1:7])
    assert writes(user) and not writes(other)
    headrace(secured.broker, "acl", "copy", other, user)
    assert writes(other)


# -- A44: what one may not see ----------------------------------------------------------------------------------------------


def heartbeat(client: RawClient, group: str, member: str, epoch: int, pattern: str | None) -> Any:
    return client.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1,
        ConsumerGroupHeartbeatRequest(
            group, member, epoch, None, None, 300_000 if epoch == 0 else -1, [] if epoch == 0 else None, pattern, None,
            [] if epoch == 0 else None,
        ),
    )  # fmt: skip


def assigned(client: RawClient, group: str, member: str, pattern: str, until: int) -> set[bytes]:
    """Topic ids that a member by that pattern is given, once there are so many; every heartbeat is one more look."""
    answer = heartbeat(client, group, member, 0, pattern)
    while answer.error_code in (14, 15, 16):  # the groups' log is being made, or loads
        client.call(ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        time.sleep(0.1)
        answer = heartbeat(client, group, member, 0, pattern)
    held: set[bytes] = set()
    while True:
        assert answer.error_code == 0, answer
        if answer.assignment is not None:
            held = {entry.topic_id for entry in answer.assignment.topic_partitions}
            if len(held) == until:
                return held
        time.sleep(0.1)
        answer = heartbeat(client, group, member, answer.member_epoch, None)


def ids_of(client: RawClient, prefix: str) -> dict[str, bytes]:
    found = client.call(ApiKey.METADATA, 12, MetadataRequest(None)).topics
    return {topic.name: topic.topic_id for topic in found if topic.name.startswith(prefix)}


@pytest.mark.timeout(300)
def test_a44_a_pattern_finds_what_its_member_may_see_and_follows_its_rights(
    secured: Secured, topic: str
) -> None:
    user, group = secured.user(), f"g-{topic}"
    seen, unseen = secured.topic(f"{topic}-seen"), secured.topic(f"{topic}-unseen")
    secured.allow(user, AclOperation.READ, ResourceType.GROUP, group)
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, seen)
    admin, client = client_of(secured, ADMIN, PASSWORD), client_of(secured, user)
    ids = ids_of(admin, topic)
    assert assigned(client, group, "m", f"{topic}-.*", 1) == {ids[seen]}
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, unseen)
    assert assigned(client, group, "m", f"{topic}-.*", 2) == set(ids.values())


@pytest.mark.timeout(300)
def test_a44_a_description_of_a_group_leaves_out_topics_that_one_may_not_see(
    secured: Secured, topic: str
) -> None:
    user, group = secured.user(), f"g-{topic}"
    seen, unseen = secured.topic(f"{topic}-seen"), secured.topic(f"{topic}-unseen")
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.GROUP, group)
    secured.allow(user, AclOperation.READ, ResourceType.GROUP, group)
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, seen)
    admin, client = client_of(secured, ADMIN, PASSWORD), client_of(secured, user)
    assigned(admin, group, "m", f"{topic}-.*", 2)
    asked = ConsumerGroupDescribeRequest([group])
    whole, part = (who.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups[0] for who in (admin, client))
    assert unseen in str(whole) and seen in str(part)
    assert unseen not in str(part) and str(ids_of(admin, unseen)[unseen]) not in str(part)
    # The same over HTTP, in each of its ways to look at a group, and nobody moves it over what they may not read.
    consumer = confluent_kafka.Consumer(
        {**librdkafka(secured.login(ADMIN, PASSWORD)), "group.id": f"{group}-classic"}
    )
    consumer.commit(offsets=[confluent_kafka.TopicPartition(each, 0, 0) for each in (seen, unseen)], asynchronous=False)  # fmt: skip
    consumer.close()
    for operation in (AclOperation.READ, AclOperation.DESCRIBE):
        secured.allow(user, operation, ResourceType.GROUP, f"{group}-classic")
    base = f"/api/v1/groups/{group}-classic"
    for path in (base, f"{base}/explain"):
        status, answer = secured.http("GET", path, user=user, password=WORD)
        assert status == 200 and unseen not in str(answer), answer
    assert unseen in str(secured.http("GET", base, user=ADMIN, password=PASSWORD)[1])
    status, answer = secured.http("POST", f"{base}/seek", {"to": "end"}, user=user, password=WORD)
    assert status == 200 and seen in str(answer) and unseen not in str(answer)
    for body in (
        {"to": "end", "topic": unseen},
        {"offsets": [{"topic": unseen, "partition": 0, "offset": 0}]},
    ):
        status, answer = secured.http("POST", f"{base}/seek", body, user=user, password=WORD)
        assert status == 404, answer


# -- A51: damage -----------------------------------------------------------------------------------------------------------


def test_a51_damaged_users_and_rights_let_nobody_in_and_are_told(
    fresh_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    secured = Secured(fresh_broker())
    user, other = secured.user(), secured.user()
    secured.topic(topic)
    for who in (user, other):
        secured.allow(
            who, AclOperation.ALL, ResourceType.TOPIC, topic[:4], pattern=ResourcePatternType.PREFIXED
        )
        assert secured.http("GET", f"/api/v1/topics/{topic}", user=who, password=WORD)[0] == 200
    secured.broker.stop()

    def damage(pattern: str) -> None:
        with closing(sqlite3.connect(secured.broker.data_dir / "coordinator.db")) as store, store:
            changed = store.execute("UPDATE kv SET value = X'7B' WHERE key LIKE ?", (pattern,)).rowcount
            assert changed

    damage(f"%security/users/{user}")
    secured.broker.start()
    assert secured.http("GET", f"/api/v1/topics/{topic}", user=user, password=WORD)[0] == 401
    assert secured.http("GET", f"/api/v1/topics/{topic}", user=other, password=WORD)[0] == 200
    assert f"users/{user}" in secured.ask("GET", "")["unreadable"]
    secured.broker.stop()
    damage("%security/acls/%")
    secured.broker.start()
    assert secured.http("GET", f"/api/v1/topics/{topic}", user=other, password=WORD)[0] == 404
    assert "can't be read" in secured.broker.log()
    assert secured.http("GET", f"/api/v1/topics/{topic}", user=ADMIN, password=PASSWORD)[0] == 200
    secured.broker.stop()
    damage("%security/mode")
    secured.broker.start()
    assert secured.http("GET", "/api/v1/topics")[0] == 401


def test_a16_the_same_is_said_of_who_is_not_there_and_of_a_wrong_password(secured: Secured) -> None:
    said = set()
    for name in (secured.user(), "nobody-of-that-name"):
        client = open_client(secured)
        with pytest.raises(AssertionError, match="error_code=58") as refused:
            log_in(client, name, "wrong")
        said.add(str(refused.value).splitlines()[0])
        assert client.is_closed_by_broker()
    assert len(said) == 1
    assert SCRAM in shake(open_client(secured), "GSSAPI").mechanisms


def test_a55_that_everybody_may_everything_is_a_figure(
    secured: Secured, fresh_broker: Callable[..., BrokerProcess]
) -> None:
    token = secured.ask("POST", "/tokens", {})["token"]
    for broker, header, wanted in ((secured.broker, f"Bearer {token}", 0), (fresh_broker(), "", 1)):
        request = urllib.request.Request(
            f"{broker.url}/metrics", headers={"authorization": header} if header else {}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        assert f"mq_security_open {wanted}" in text and "mq_security_open_to_network 0" in text
