"""F50, F51: the SDK in somebody's first hour: no broker, a typing error, a large message, a test of their own."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Client, HeadraceError
from headrace.core.errors import ErrorKind
from headrace.testing import LocalBroker
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

MIB = 1 << 20


@pytest.fixture
def nobody() -> str:
    """An address that refuses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("doing", ["publish('t', 'x')", "subscribe('t')", "subscribe('t', group='g')"])
def test_f51_without_a_broker_it_says_so(nobody: str, delivery: str, doing: str) -> None:
    program = f"""
import headrace
try:
    with headrace.Client({nobody!r}, {delivery!r}, timeout=2) as client:
        client.{doing}
except headrace.HeadraceError as problem:
    print(problem.kind.name, problem.detail, problem.hint)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout.startswith(f"BROKER_NOT_AVAILABLE no broker answers at {nobody}"), ended
    assert "headrace serve" in ended.stdout
    assert ended.stderr == "", "no lines of librdkafka"


def test_f51_exactly_once_gives_up_in_time() -> None:
    """Somebody listens and never answers: init_transactions was tried again for ever."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", "exactly-once", timeout=1)
        with pytest.raises(HeadraceError) as refused:
            client.publish("t", "x")
        assert refused.value.kind in (ErrorKind.REQUEST_TIMED_OUT, ErrorKind.BROKER_NOT_AVAILABLE)


@pytest.mark.parametrize("group", [None, "typists"])
def test_f51_a_typing_error_makes_no_topic(broker: BrokerProcess, topic: str, group: str | None) -> None:
    with Client(broker.bootstrap) as client:
        client.publish(topic, "x").result(60)
        with pytest.raises(HeadraceError) as refused:
            client.subscribe(topic + "s", group=group)
        assert refused.value.kind is ErrorKind.UNKNOWN_TOPIC_OR_PARTITION
        assert f'Did you mean "{topic}"?' in refused.value.hint
        with pytest.raises(HeadraceError):
            client.subscribe(topic + "s", group=group)  # still not there


def test_f51_a_worker_may_come_before_its_publisher(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.bootstrap) as client:
        subscription = client.subscribe(topic, group=f"g-{topic}", create=True)
        client.publish(topic, "x").result(60)
        assert next(subscription).text == "x"


def test_f51_async_with(broker: BrokerProcess, topic: str) -> None:
    async def work() -> list[str]:
        async with Client(broker.bootstrap) as client:
            await client.publish(topic, "x")
            async with client.subscribe(topic, follow=False) as subscription:
                return [message.text async for message in subscription]

    assert asyncio.run(work()) == ["x"]


def test_f51_a_broker_for_tests_of_ones_own() -> None:
    with LocalBroker() as broker, broker.client() as client:
        client.publish("orders", {"id": 7}).result(60)
        (message,) = client.subscribe("orders", follow=False)
        assert message.json() == {"id": 7}


def test_f50_a_message_may_be_as_large_as_its_topic_allows(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    def cli(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "headrace", *arguments, "-b", broker.bootstrap, "--timeout", "60s"]
        return subprocess.run(command, capture_output=True, timeout=200)

    assert cli("topic", "create", topic, "-c", "max.message.bytes=8MiB").returncode == 0
    line = tmp_path / "large.txt"
    line.write_bytes(b"a" * (5 * MIB))
    produced = cli("topic", "produce", topic, "--file", str(line))
    assert produced.returncode == 0, produced
    with Client(broker.bootstrap) as client:
        client.publish(topic, b"b" * (6 * MIB)).result(60)
        assert [len(found.value or b"") for found in client.subscribe(topic, follow=False)] == [
            5 * MIB,
            6 * MIB,
        ]
        with pytest.raises(HeadraceError) as refused:
            client.publish(topic, b"c" * (9 * MIB)).result(60)
        assert refused.value.kind is ErrorKind.MESSAGE_TOO_LARGE
        assert "max.message.bytes" in refused.value.hint
    assert len(cli("topic", "consume", topic).stdout) == 11 * MIB + 2
    line.write_bytes(b"a" * (9 * MIB))
    assert b"max.message.bytes" in cli("topic", "produce", topic, "--file", str(line)).stderr
