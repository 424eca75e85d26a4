"""F54: one form of times, headers, bytes and states, whoever is asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Producer
from made_groups import make_group
from raw_client import RawClient

from headrace.http.rest.groups import state_name
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

AT_MS = 1_790_000_000_123
AT = "2026-09-21T14:13:20.123Z"


def rest(broker: BrokerProcess, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answered:
        return json.load(answered)


def cli(broker: BrokerProcess, *words: str) -> str:
    command = [sys.executable, "-m", "headrace", *words, "--bootstrap", broker.bootstrap, "--timeout", "60s"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_f54_a_record_looks_the_same_at_every_door(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("colour", b"red"), ("twice", b"1"), ("twice", b"\xff"), ("none", None)]
    producer.produce(topic, b"\xfe", b"key", headers=headers, timestamp=AT_MS)
    assert producer.flush(60) == 0
    (shown,) = rest(broker, f"/topics/{topic}/records?offset=start")["items"]
    assert shown == {
        "topic": topic, "partition": 0, "offset": 0, "timestamp": AT, "timestamp_ms": AT_MS, "key": "key", "value": {"base64": "/g=="},
        "headers": {"colour": "red", "twice": ["1", {"base64": "/w=="}], "none": None},
    }  # fmt: skip
    consumed = json.loads(cli(broker, "topic", "consume", topic, "--output", "jsonl").splitlines()[0])
    assert consumed == {"schema": "headrace.message/v2", **shown}
    # And what was shown can be published as it is.
    again = {name: shown[name] for name in ("key", "value", "headers", "timestamp", "timestamp_ms")}
    (place,) = rest(broker, f"/topics/{topic}/records", again)["records"]
    (copy,) = rest(broker, f"/topics/{topic}/records?partition=0&offset={place['offset']}")["items"]
    assert copy == {**shown, "offset": place["offset"]}
    del again["timestamp_ms"]
    (place,) = rest(broker, f"/topics/{topic}/records", again)["records"]
    (copy,) = rest(broker, f"/topics/{topic}/records?partition=0&offset={place['offset']}")["items"]
    assert copy["timestamp_ms"] == AT_MS


def test_f54_moments_are_there_for_people_and_programs(broker: BrokerProcess, topic: str) -> None:
    made = rest(broker, "/api/v1/queues", {"name": topic})
    assert (
        re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", made["created"])
        and made["created_ms"] > 10**12
    )


def test_f54_a_group_has_the_same_state_over_rest_and_in_the_cli(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic(topic)
    make_group(broker, topic, topic)
    over_rest = rest(broker, f"/api/v1/groups/{topic}")
    (in_the_cli,) = json.loads(cli(broker, "group", "describe", topic, "--json"))["items"]
    assert over_rest["state"] == in_the_cli["state"] == "empty"


@pytest.mark.parametrize(
    ("kafkas", "ours"),
    [("Empty", "empty"), ("PreparingRebalance", "preparing-rebalance"), ("CompletingRebalance", "completing-rebalance"), ("NotReady", "not-ready")],
)  # fmt: skip
def test_f54_states_are_words_with_hyphens(kafkas: str, ours: str) -> None:
    assert state_name(kafkas) == ours
