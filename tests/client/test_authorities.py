"""A59, P11: another authority while three brokers run, and then the old one is believed by nobody."""

from __future__ import annotations

import signal
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.net.tls import broker_uri
from headrace.security.certificates import Pair, issue, make_authority
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

pytestmark = [pytest.mark.client, pytest.mark.timeout(900)]
NUMBERS = (1, 2, 3)
PATIENCE_S = 240.0


def patiently(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Fleet:
    def __init__(self, home: Path) -> None:
        self._home = home
        self.brokers: dict[int, BrokerProcess] = {}
        self.believed = home / "ca.pem"

    def authority(self, name: str) -> Pair:
        made = Pair(self._home / f"{name}.pem", self._home / f"{name}.key")
        make_authority(made, name)
        return made

    def certify(self, authority: Pair, *numbers: int) -> None:
        """These brokers, or each, by this authority, in the files that they have."""
        for number in numbers or NUMBERS:
            issue(
                authority,
                self._leaf(number),
                f"broker {number}",
                ["localhost", "127.0.0.1"],
                [broker_uri(number)],
            )

    def _leaf(self, number: int) -> Pair:
        return Pair(self._home / f"b{number}.pem", self._home / f"b{number}.key")

    def start(self, number: int) -> None:
        leaf = self._leaf(number)
        environment = {
            "HEADRACE_NODE_ID": str(number),
            "HEADRACE_COORDINATOR": f"sqlite://{self._home}/coordinator.db",
            "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
            "HEADRACE_TLS_CERT": str(leaf.certificate),
            "HEADRACE_TLS_KEY": str(leaf.key),
            "HEADRACE_TLS_CA": str(self.believed),
            "HEADRACE_INTERNAL_TLS": "true",
        }
        broker, before = (
            BrokerProcess(self._home / f"data{number}", environment=environment),
            self.brokers.get(number),
        )
        broker.kafka_port, broker.http_port = (
            (before.kafka_port, before.http_port) if before else free_ports(2)
        )
        self.brokers[number] = broker.start()

    def look_again(self) -> None:
        for broker in self.brokers.values():
            broker.signal(signal.SIGHUP)

    def shows(self, number: int, authority: Pair) -> bool:
        """To somebody who believes this authority alone."""
        import socket

        context = ssl.create_default_context(cafile=str(authority.certificate))
        try:
            with socket.create_connection(("127.0.0.1", self.brokers[number].kafka_port), 60) as plain:
                context.wrap_socket(plain, server_hostname="localhost").close()
        except ssl.SSLError:
            return False
        return True

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def partitions(self) -> list[Any]:
        """None as long as the broker that was asked has not heard of the topic: a list is of what it knows, as in Kafka."""
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=60).topics
        return list(found["orders"].partitions.values()) if "orders" in found else []

    def is_whole(self) -> bool:
        partitions = self.partitions()
        return bool(partitions) and all(len(partition.isrs) == 3 for partition in partitions)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    for broker in made.brokers.values():
        broker.__exit__(None, None, None)


def test_a59_another_authority_while_three_brokers_run(fleet: Fleet) -> None:
    """Both are believed, everybody gets a certificate of the new one, the old one goes; then a broker that was killed comes back
    with a certificate that only the new authority has signed, and is believed by those that have run all the time."""
    old, new = fleet.authority("old"), fleet.authority("new")
    fleet.believed.write_bytes(old.certificate.read_bytes())
    fleet.certify(old)
    for number in NUMBERS:
        fleet.start(number)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(60)
    patiently(fleet.is_whole)
    producer, outcome = confluent_kafka.Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all"}), []

    def publish(count: int) -> None:
        for number in range(count):
            producer.produce(
                "orders",
                b"%d" % number,
                partition=number % 3,
                on_delivery=lambda error, _: outcome.append(error),
            )
        assert producer.flush(240) == 0

    publish(30)
    fleet.believed.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
    fleet.look_again()
    fleet.certify(new)
    publish(30)

    def all_show(authority: Pair) -> bool:
        fleet.look_again()
        return all(fleet.shows(number, authority) for number in NUMBERS)

    patiently(lambda: all_show(new))
    fleet.believed.write_bytes(new.certificate.read_bytes())
    fleet.look_again()
    publish(30)
    fleet.brokers[2].kill()
    fleet.start(2)

    def leads_again() -> bool:
        """Then the others call it, and not only it the others."""
        admin.elect_leaders(ElectionType.PREFERRED).result(60)
        return {partition.leader for partition in fleet.partitions()} == {*NUMBERS} and fleet.is_whole()

    patiently(leads_again)
    publish(30)
    patiently(fleet.is_whole)
    assert outcome == [None] * 120
    # And nobody believes the old one any more: with a certificate of it a broker is not let in.
    fleet.brokers[3].kill()
    fleet.certify(old, 3)
    fleet.start(3)
    publish(9)
    assert not fleet.is_whole()
