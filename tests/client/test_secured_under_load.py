"""P11, A50, A54, A59: three brokers that work are secured step by step, TLS and all, certificates and authority and key are replaced, and everything is
opened again. Clients write and read all the time; not one of them loses anything or is told of an error."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic
from load_while import PATIENCE_S, Load, check, patiently
from raw_client import RawClient
from sasl_clients import Login, librdkafka

from headrace.cli.main import main
from headrace.net.tls import broker_uri
from headrace.security.certificates import Pair, issue, make_authority, show
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not os.environ.get("HEADRACE_SECURITY"), reason="long: make security"),
]

NUMBERS = (1, 2, 3)
PARTITIONS = 3
TOPIC = "orders"
ADMIN, PASSWORD = "admin", "the admin's own"
ALICE, WORD = "alice", "a word of hers"
TLS = {"HEADRACE_TLS_CERT": "{home}/b{number}.pem", "HEADRACE_TLS_KEY": "{home}/b{number}.key", "HEADRACE_TLS_CA": "{home}/ca.pem"}  # fmt: skip
MOVING = {"HEADRACE_INTERNAL_TLS": "true", "HEADRACE_INTERNAL_TLS_MOVING": "true"}
STRICT = {"HEADRACE_INTERNAL_TLS": "true", "HEADRACE_PLAINTEXT": "refuse"}


class Fleet:
    """Three brokers of one host, each a process of its own, restarted one at a time with other settings."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.brokers: dict[int, BrokerProcess] = {}
        self.trusted = home / "ca.pem"
        self.keys = home / "secrets.key"
        self._admin: AdminClient | None = None
        self._has_tls = False

    def start(self, number: int, settings: dict[str, str]) -> None:
        environment = {
            "HEADRACE_NODE_ID": str(number),
            "HEADRACE_COORDINATOR": f"sqlite://{self._home}/coordinator.db",
            "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
            "HEADRACE_SECRETS_KEY_FILE": str(self.keys),
            **{name: value.format(home=self._home, number=number) for name, value in settings.items()},
        }
        directory = self._home / f"data{number}"
        broker = BrokerProcess(directory, environment=environment, start_seconds=PATIENCE_S)
        before = self.brokers.get(number)
        broker.kafka_port, broker.http_port = (
            (before.kafka_port, before.http_port) if before else free_ports(2)
        )
        self.brokers[number] = broker.start()

    def roll(self, *settings: dict[str, str]) -> None:
        """One broker after the other, each when all replicas are in sync again."""
        merged = {name: value for each in settings for name, value in each.items()}
        for number in NUMBERS:
            patiently(self.is_whole, f"a whole cluster before broker {number} is restarted")
            self.brokers[number].stop(PATIENCE_S)
            self.start(number, merged)
        patiently(self.is_whole, "a whole cluster")
        self._has_tls = "HEADRACE_TLS_CERT" in merged

    def look_again(self) -> None:
        for broker in self.brokers.values():
            broker.signal(signal.SIGHUP)

    # -- who asks ------------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def plain(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap}

    def login(self, user: str, password: str, trusted: Path) -> dict[str, Any]:
        return librdkafka(Login(self.bootstrap, "SCRAM-SHA-512", user, password, str(trusted)))

    def asked_by(self, login: dict[str, Any]) -> None:
        self._admin = AdminClient(login)

    def topics(self) -> dict[str, Any]:
        assert self._admin is not None
        return dict(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def is_whole(self) -> bool:
        """A list is of what the asked broker has heard of: of all three as soon as all three are there again."""
        topics = self.topics()
        return TOPIC in topics and all(
            len(partition.isrs) == 3 and partition.leader > 0
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def create(self) -> None:
        assert self._admin is not None
        config = {"min.insync.replicas": "2"}
        self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=config)])[TOPIC].result(PATIENCE_S)
        patiently(self.is_whole)

    def headrace(self, *words: str, code: int = 0, user: str = ADMIN, password: str = PASSWORD) -> str:
        scheme = "https" if self._has_tls else "http"
        environment = {
            "HEADRACE_URL": f"{scheme}://127.0.0.1:{self.brokers[1].http_port}",
            "HEADRACE_BOOTSTRAP": self.bootstrap, "HEADRACE_USER": user, "HEADRACE_PASSWORD": password,
            **({"HEADRACE_TLS_CA": str(self.trusted)} if self._has_tls else {}),
        }  # fmt: skip
        done = CliRunner().invoke(main, words, env=environment)
        assert done.exit_code == code, done.output
        return done.output

    # -- what each broker does -----------------------------------------------------------------------------------------

    def hears_nameless(self, number: int, tls: bool = False) -> bool:
        try:
            client = RawClient(self.brokers[number].kafka_port)
            if tls:
                context = ssl.create_default_context(cafile=str(self.trusted))
                client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.call(ApiKey.METADATA, 9, MetadataRequest([]))
        except ConnectionError:
            return False
        return True

    def speaks_plain_http(self, number: int) -> bool:
        try:
            with urllib.request.urlopen(f"{self.brokers[number].url}/livez", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except ConnectionError:
            return False
        except urllib.error.URLError as problem:
            assert isinstance(problem.reason, ConnectionError), problem
            return False

    def serial(self, number: int, authority: Path) -> str:
        """Of the certificate that it shows to somebody who trusts this authority alone; empty: they do not believe it."""
        context = ssl.create_default_context(cafile=str(authority))
        try:
            with (
                socket.create_connection(("127.0.0.1", self.brokers[number].kafka_port), PATIENCE_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                found = secure.getpeercert()
                assert found is not None
                return str(found["serialNumber"]).lower().lstrip("0")
        except ssl.SSLCertVerificationError:
            return ""

    # -- files ---------------------------------------------------------------------------------------------------------

    def authority(self, name: str) -> Pair:
        made = Pair(self._home / f"{name}.pem", self._home / f"{name}.key")
        make_authority(made, name)
        return made

    def certify(self, authority: Pair) -> dict[int, str]:
        """The serial numbers of what each broker has from now on."""
        serials = {}
        for number in NUMBERS:
            leaf = Pair(self._home / f"b{number}.pem", self._home / f"b{number}.key")
            issue(authority, leaf, f"broker {number}", ["localhost", "127.0.0.1"], [broker_uri(number)])
            serials[number] = show(leaf.certificate).serial.lower().lstrip("0")
        return serials

    def write_keys(self, *keys: str) -> None:
        self.keys.touch(0o600)
        self.keys.write_text("\n".join(keys) + "\n")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    for broker in made.brokers.values():
        broker.__exit__(None, None, None)


@pytest.fixture
def loads() -> Iterator[list[Load]]:
    """Whatever a test leaves running is ended."""
    running: list[Load] = []
    yield running
    for load in running:
        load.end()


def test_p11_three_brokers_are_secured_under_load_with_tls_and_opened_again(
    fleet: Fleet, loads: list[Load]
) -> None:
    def begins(name: str, login: dict[str, Any]) -> Load:
        load = Load(name, login, TOPIC, PARTITIONS)
        loads.append(load)
        load.goes_on()
        return load

    old = fleet.authority("old")
    fleet.trusted.write_bytes(old.certificate.read_bytes())
    fleet.certify(old)
    fleet.write_keys("0a" * 32)
    for number in NUMBERS:
        fleet.start(number, {})
    fleet.asked_by(fleet.plain())
    fleet.create()
    first = begins("plain", fleet.plain())

    # Users, and TLS beside what there was: nobody has to move.
    make_users(fleet)
    fleet.roll(TLS)
    first.goes_on()

    # One program moves, and is watched; the other one is what enforcing waits for.
    moved = begins("moved", fleet.login(ALICE, WORD, fleet.trusted))
    allow_what_is_used(fleet, moved)
    first.end()
    fleet.asked_by(fleet.login(ADMIN, PASSWORD, fleet.trusted))
    fleet.headrace("security", "enforce", "--force")
    patiently(
        lambda: not any(fleet.hears_nameless(number, tls) for number in NUMBERS for tls in (False, True))
    )
    moved.goes_on()

    # Brokers among themselves, then nothing plain at all.
    fleet.roll(TLS, MOVING)
    moved.goes_on()
    fleet.roll(TLS, STRICT)
    moved.goes_on()
    assert not any(fleet.speaks_plain_http(number) for number in NUMBERS)

    latest = replace_what_proves(fleet, old, moved, begins)

    # And back, a step at a time.
    fleet.roll(TLS, MOVING)
    latest.goes_on()
    fleet.headrace("security", "open", "--yes")
    patiently(lambda: all(fleet.hears_nameless(number) for number in NUMBERS))
    last = begins("plain-again", fleet.plain())
    latest.end()
    fleet.asked_by(fleet.plain())
    fleet.roll(TLS)
    last.goes_on()
    fleet.roll()
    last.goes_on()
    last.end()
    check(loads, TOPIC, PARTITIONS, fleet.plain())
    print({load.name: (len(load.acknowledged), load.gaps_ms()[-5:]) for load in loads})


def make_users(fleet: Fleet) -> None:
    for user, password, more in ((ADMIN, PASSWORD, ("--super",)), (ALICE, WORD, ())):
        file = fleet.trusted.with_name(f"{user}.password")
        file.touch(0o600)
        file.write_text(password)
        fleet.headrace("user", "create", user, "--password-file", str(file), *more, user="", password="")


def allow_what_is_used(fleet: Fleet, load: Load) -> None:
    fleet.headrace("security", "observe")
    load.goes_on()

    def suggested() -> list[str]:
        lines = fleet.headrace("acl", "suggest", "-o", "name").splitlines()
        return [line for line in lines if f" {ALICE} " in line]

    def enough() -> bool:
        text = "\n".join(suggested())
        return all(words in text for words in ("write", "read", f"topic {TOPIC}", "group readers"))

    patiently(enough, "a suggestion for everything she does")
    refused = fleet.headrace("security", "enforce", code=6)
    assert "without a name" in refused, "the program that has not moved"
    fleet.headrace(
        "acl", "add", ALICE, "read", "group", "followers"
    )  # that nobody uses before it connects again
    for line in suggested():
        fleet.headrace(*shlex.split(line)[1:])


def replace_what_proves(fleet: Fleet, old: Pair, load: Load, begins: Any) -> Load:
    """Certificates, then the authority that signs them, then the key that seals; programs move once, when both authorities are known."""
    renewed = fleet.certify(old)
    fleet.look_again()
    patiently(lambda: all(fleet.serial(number, old.certificate) == renewed[number] for number in NUMBERS))
    load.goes_on()

    new = fleet.authority("new")
    fleet.trusted.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
    fleet.look_again()
    both = fleet.trusted.with_name("both.pem")
    both.write_bytes(fleet.trusted.read_bytes())
    later = begins("later", fleet.login(ALICE, WORD, both))
    load.end()
    fleet.asked_by(fleet.login(ADMIN, PASSWORD, both))
    signed = fleet.certify(new)
    fleet.look_again()
    patiently(lambda: all(fleet.serial(number, new.certificate) == signed[number] for number in NUMBERS))
    later.goes_on()
    fleet.trusted.write_bytes(new.certificate.read_bytes())
    fleet.look_again()
    assert not any(fleet.serial(number, old.certificate) for number in NUMBERS)
    fleet.roll(TLS, STRICT)  # every connection between brokers is a new one, of the new authority alone
    later.goes_on()

    fleet.write_keys("0b" * 32, "0a" * 32)
    assert "sealed" in fleet.headrace("security", "reseal")
    fleet.write_keys("0b" * 32)
    fleet.roll(TLS, STRICT)
    later.goes_on()
    return later
