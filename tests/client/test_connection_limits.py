"""X14 through the door: idle sockets lock nobody out, and limits are configs that work while the broker runs (F26)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from raw_client import RawClient

from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.client

BROKER = 4


def set_config(client: RawClient, name: str, value: str) -> None:
    change = AlterConfigsResource(BROKER, "1", [AlterableConfig(name, 0, value)])
    answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, IncrementalAlterConfigsRequest([change], False))
    assert answer.responses[0].error_code == 0, answer


def is_closed(held: socket.socket) -> bool:
    held.setblocking(False)
    try:
        return held.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def is_served(port: int) -> bool:
    try:
        with RawClient(port) as client:
            return bool(client.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers)
    except ConnectionError:
        return False


def test_idle_sockets_lock_nobody_out_f26(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """Before: as many idle sockets as an address may have, and nobody from there got in until they were closed."""
    port = fresh_broker().kafka_port
    with RawClient(port) as admin:
        admin.create_topic("t")
        set_config(admin, "max.connections.per.ip", "50")
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        wait_until(lambda: is_served(port))
        with RawClient(port) as client:
            row = client.produce("t", build_batch([Record(b"k", b"v")], wall_ms=0), acks=-1)
            assert row.error_code == 0
        for held in idle:
            held.close()


def test_who_waits_for_an_answer_keeps_the_place_f26(fresh_broker: Callable[..., BrokerProcess]) -> None:
    from raw_client import fetch_request

    port = fresh_broker().kafka_port
    with RawClient(port) as admin, RawClient(port, 90) as reader:
        admin.create_topic("t")
        reader.send(ApiKey.FETCH, 11, fetch_request([("t", 0, 0)], max_wait_ms=60_000))
        set_config(admin, "max.connections.per.ip", "5")
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        wait_until(lambda: any(is_closed(held) for held in idle))
        wait_until(lambda: is_served(port))
        with RawClient(port) as writer:
            writer.produce("t", build_batch([Record(b"k", b"v")], wall_ms=0), acks=-1)
        assert reader.answer(ApiKey.FETCH, 11).topics[0].partitions[0].records
        for held in idle:
            held.close()


def test_an_address_can_be_shut_out_and_let_in_again_f26(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """`max.connections.per.ip.overrides`, while the broker runs."""
    port = fresh_broker().kafka_port
    with RawClient(port) as admin:
        set_config(admin, "max.connections.per.ip.overrides", "127.0.0.1:0")
        assert not is_served(port)
        set_config(admin, "max.connections.per.ip.overrides", "127.0.0.1:10")
        assert is_served(port)


def test_idle_connections_are_closed_after_the_configured_time_f26(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    port = fresh_broker().kafka_port
    with RawClient(port) as admin, socket.create_connection(("127.0.0.1", port)) as idle:
        set_config(admin, "connections.max.idle.ms", "100")
        wait_until(lambda: is_closed(idle))
