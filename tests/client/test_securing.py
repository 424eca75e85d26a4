"""A9, A30, A52, A54, P10, P11: a cluster of three is secured while it works, and opened again; what is withdrawn at one broker counts at every one."""

from __future__ import annotations

import itertools
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclBindingFilter, AclOperation, ResourceType
from raw_client import RawClient
from raw_login import log_in
from sasl_clients import librdkafka
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import until

from headrace.cli.main import main
from headrace.cli.user_view import scram_records
from headrace.testing.local_broker import LocalCluster
from headrace.wire.api import ApiKey
from headrace.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

WORD = "a word"


class World(Secured):
    """A cluster in mode open whose administrator has not been made yet."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.broker = cluster  # type: ignore[assignment]

    @property
    def ports(self) -> list[int]:
        return [int(one.rpartition(":")[2]) for one in self.cluster.bootstrap.split(",")]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with LocalCluster(3, num_partitions=3) as running:
        made = World(running)
        made.ask("POST", "/users", new_user(ADMIN, PASSWORD, super=True), user="")
        made.ask("POST", "/users", new_user("alice", WORD), user="")
        yield made


def new_user(name: str, password: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "scram": scram_records(password, 4096), **more}


class Traffic:
    """Writes and reads without a pause; whatever its clients call an error is kept."""

    def __init__(self, world: World, topic: str) -> None:
        self._login = librdkafka(world.login("alice", WORD))
        self._topic = topic
        self._end = threading.Event()
        self.errors: list[str] = []
        self.sent: list[int] = []
        self.got: list[int] = []
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _error(self, problem: Any) -> None:
        self.errors.append(str(problem))

    def _write(self) -> None:
        config = {**self._login, "enable.idempotence": True, "error_cb": self._error, "linger.ms": 5}
        producer = confluent_kafka.Producer(config)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._error(error)
            else:
                self.sent.append(int(message.value()))

        for number in itertools.count():
            if self._end.is_set():
                break
            producer.produce(self._topic, b"%d" % number, key=b"k", on_delivery=delivered)
            producer.poll(0.02)
        assert producer.flush(120) == 0

    def _read(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                **self._login,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "error_cb": self._error,
                "enable.auto.commit": True,
            }
        )
        consumer.subscribe([self._topic])
        while not self._end.is_set() or len(self.got) < len(self.sent) or self._threads[0].is_alive():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self._error(message.error())
            else:
                self.got.append(int(message.value()))
        consumer.close()

    def goes_on(self) -> None:
        """Until a hundred more have been written and read: whatever was changed is in effect for them."""
        wanted = len(self.sent) + 100
        until(lambda: len(self.sent) >= wanted and len(self.got) >= wanted)

    def end(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(300)


def headrace(world: World, *words: str) -> str:
    environment = {
        "HEADRACE_URL": world.cluster.url, "HEADRACE_BOOTSTRAP": world.cluster.bootstrap,
        "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD,
    }  # fmt: skip
    done = CliRunner().invoke(main, words, env=environment)
    assert done.exit_code == 0, done.output
    return done.output


def wanted_by(world: World, user: str) -> set[tuple[str, str]]:
    denied = world.ask("GET", "/denials")["denied"]
    return {(each["operation"], each["resource"]) for each in denied if each["principal"] == f"User:{user}"}


def nameless(port: int) -> bool:
    """Whether somebody without a name is heard there."""
    client = RawClient(port)
    try:
        client.call(ApiKey.METADATA, 9, MetadataRequest([]))
    except ConnectionError:
        return False
    return True


def test_p11_a_cluster_is_secured_under_load_and_opened_again_and_nobody_notices(world: World) -> None:
    world.cluster.create_topic("orders", 3)
    traffic = Traffic(world, "orders")
    try:
        traffic.goes_on()
        world.set_mode("observe", user="")
        traffic.goes_on()
        refused = ("PUT", "/api/v1/security/mode", {"mode": "enforced"})
        status, answer = world.http(*refused, user=ADMIN, password=PASSWORD)
        assert status == 409 and "User:alice" in answer["detail"], answer
        until(lambda: {("Write", "Topic"), ("Read", "Topic"), ("Read", "Group")} <= wanted_by(world, "alice"))
        suggested = [
            line for line in headrace(world, "acl", "suggest", "-o", "name").splitlines() if "alice" in line
        ]
        assert any("write topic orders" in line for line in suggested), suggested
        for line in suggested:
            headrace(world, *shlex.split(line)[1:])
        assert nameless(world.ports[2]), "refused by nobody yet"
        status, answer = world.http(*refused, user=ADMIN, password=PASSWORD)
        assert status == 409 and "without a name" in answer["detail"], "seen by another broker than was asked"
        assert "alice" not in answer["detail"], "what she lacked she has by now"
        headrace(world, "security", "enforce", "--force")
        until(lambda: not any(nameless(port) for port in world.ports))
        traffic.goes_on()
        headrace(world, "security", "open", "--yes")
        until(lambda: all(nameless(port) for port in world.ports))
        traffic.goes_on()
    finally:
        traffic.end()
    assert traffic.errors == []
    assert traffic.got == traffic.sent == list(range(len(traffic.sent))), "all of it, once, in order"


def known(world: World) -> Callable[[], bool]:
    """Whether every broker knows what this one knows now."""
    revision = world.ask("GET", "")["revision"]
    return lambda: all(
        each["revision"] >= revision
        for each in world.ask("GET", "/denials")["brokers"]
        if not each["problem"]
    )


def test_p10_a_right_that_is_withdrawn_counts_at_every_broker_in_long_polls_too(world: World) -> None:
    world.ask("POST", "/users", new_user("bob", WORD))
    world.set_mode("enforced")
    world.admin = confluent_kafka.admin.AdminClient(librdkafka(world.login(ADMIN, PASSWORD)))
    world.topic("private")
    acl = world.allow("bob", AclOperation.READ, ResourceType.TOPIC, "private")
    until(known(world))
    clients = [RawClient(port) for port in world.ports]
    named = MetadataRequest([MetadataRequestTopic(name="private")])
    for client in clients:
        log_in(client, "bob", WORD)
        assert client.call(ApiKey.METADATA, 9, named).topics[0].error_code == 0
    answer = clients[0].call(ApiKey.METADATA, 9, named)
    port = {node.node_id: node.port for node in answer.brokers}[answer.topics[0].partitions[0].leader_id]
    reader = RawClient(port)
    log_in(reader, "bob", WORD)
    waiting = FetchRequest(
        -1, -1, 4_000, 1, 1 << 20, 0, 0, -1, [FetchTopic("private", bytes(16), [FetchPartition(0)])]
    )
    reader.socket.sendall(reader.frame(ApiKey.FETCH, 11, encode_fetch_request(waiting, 11)))
    asked = AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )  # fmt: skip
    for future in world.admin.delete_acls([asked]).values():
        future.result(30)
    until(known(world))
    producer = confluent_kafka.Producer(librdkafka(world.login(ADMIN, PASSWORD)))
    producer.produce("private", b"secret", partition=0)
    assert producer.flush(60) == 0
    assert [client.call(ApiKey.METADATA, 9, named).topics[0].error_code for client in clients] == [29, 29, 29]
    frame = reader.read_frame()
    assert b"secret" not in bytes(frame), "it was waiting when the right was withdrawn"


def test_a9_who_is_disabled_is_out_at_every_broker(world: World) -> None:
    world.ask("POST", "/users", new_user("carol", WORD))
    until(known(world))
    count = 200 if os.environ.get("HEADRACE_SECURITY") == "1" else len(world.ports)
    clients = [RawClient(port) for port in itertools.islice(itertools.cycle(world.ports), count)]
    for client in clients:
        log_in(client, "carol", WORD)
    world.ask("PATCH", "/users/carol", {"enabled": False})
    assert all(client.is_closed_by_broker() for client in clients)
    for port in world.ports:
        with pytest.raises(AssertionError, match="error_code=58"):
            log_in(RawClient(port), "carol", WORD)
