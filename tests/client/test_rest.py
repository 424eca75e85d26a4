"""D1: REST as curl meets it: publish, browse, tail, administration, idempotency, refusals (issue 7)."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import confluent_kafka as ck
import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


class Got(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None, **headers: str) -> Got:
    """A dict goes as JSON, bytes as they are."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body
    if body is not None and not isinstance(body, bytes):
        data = json.dumps(body).encode()
        named.setdefault("content-type", "application/json")
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    try:
        connection.request(method, path, data, named)
        response = connection.getresponse()
        raw = response.read()
        kind = response.headers.get("content-type", "")
        found = json.loads(raw) if "json" in kind and "jsonl" not in kind and raw else raw
        return Got(response.status, found, {k.lower(): v for k, v in response.headers.items()})
    finally:
        connection.close()


def published(broker: BrokerProcess, topic: str, *values: Any, **more: Any) -> list[dict[str, Any]]:
    got = ask(broker, "POST", f"/topics/{topic}/records", {"records": [{"value": v, **more} for v in values]})
    assert got.status == 201, got
    rows: list[dict[str, Any]] = got.body["records"]
    return rows


# -- records ---------------------------------------------------------------------------------------------------------


def test_raw_bodies_json_and_bytes_come_back_as_they_were(broker: BrokerProcess, topic: str) -> None:
    assert (
        ask(broker, "POST", f"/topics/{topic}/records?key=k&tag=eu", b"\xff\x00", x_header_a="1").status
        == 201
    )
    published(broker, topic, "text", {"n": 1}, None, key={"base64": "AP8="})
    items = ask(broker, "GET", f"/topics/{topic}/records").body["items"]
    assert [item["value"] for item in items] == [{"base64": "/wA="}, "text", '{"n":1}', None]
    assert items[0]["headers"] == {"a": "1", "tag": "eu"} and items[0]["key"] == "k"
    assert items[1]["key"] == {"base64": "AP8="}
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    first = consumer.consume(1, 10)[0]
    consumer.close()
    assert (first.key(), first.value()) == (b"k", b"\xff\x00"), "one log, two protocols"


def test_browsing_by_offset_time_cursor_and_filter(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "POST", "/api/v1/topics", {"name": topic, "partitions": 3})
    for partition in range(3):
        body = {
            "records": [
                {"value": {"p": partition, "n": n}, "timestamp": 1_790_000_000_000 + n} for n in range(7)
            ]
        }
        assert ask(broker, "POST", f"/topics/{topic}/records?partition={partition}", body).status == 201

    def read(query: str) -> dict[str, Any]:
        got = ask(broker, "GET", f"/topics/{topic}/records?{query}")
        assert got.status == 200, got
        found: dict[str, Any] = got.body
        return found

    assert [r["offset"] for r in read("partition=1&offset=2&limit=3")["items"]] == [2, 3, 4]
    assert read("partition=1&offset=2&limit=3")["next_offset"] == 5
    assert [r["offset"] for r in read("partition=1&offset=-2")["items"]] == [5, 6]
    everything = read("partition=1&offset=start")["items"]
    for place in ("earliest", "beginning", "@3650d", "@2001-01-01"):
        assert read(f"partition=1&offset={place}")["items"] == everything, place
    for place in ("latest", "@15m", "@2199-01-01"):
        assert read(f"partition=1&offset={place}")["items"] == [], place
    assert [r["offset"] for r in read("partition=1&from=1790000000004")["items"]] == [4, 5, 6]
    assert read("partition=1&from=2030-01-01T00:00:00Z")["items"] == []
    seen, cursor = [], ""
    while True:
        page = read(f"limit=4&cursor={cursor}" if cursor else "limit=4")
        if not page["items"]:
            break
        seen += [(r["partition"], r["offset"]) for r in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [(p, n) for p in range(3) for n in range(7)], "pages neither repeat nor skip"
    assert len(read("where=value.n%20%3E%204")["items"]) == 6
    lines = ask(broker, "GET", f"/topics/{topic}/records?partition=0", accept="application/jsonl")
    assert [json.loads(line)["offset"] for line in lines.body.splitlines()] == list(range(7))
    assert lines.headers["x-next-cursor"] == "0:7"


def test_aborted_records_are_not_shown(broker: BrokerProcess, topic: str) -> None:
    """R48 holds for this door, too."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(20)
    for commit in (False, True, False):
        producer.begin_transaction()
        producer.produce(topic, b"yes" if commit else b"no")
        producer.flush(120)
        producer.commit_transaction(120) if commit else producer.abort_transaction(120)
    items = ask(broker, "GET", f"/topics/{topic}/records").body["items"]
    assert [item["value"] for item in items] == ["yes"]


def events(broker: BrokerProcess, path: str, count: int, **headers: str) -> list[tuple[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers={"accept": "text/event-stream", **named})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    found: list[tuple[str, Any]] = []
    event_id = ""
    while len(found) < count:
        line = response.readline().decode().rstrip("\n")
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data: "):
            found.append((event_id, json.loads(line[6:])))
    connection.close()
    return found


def test_a_tail_resumes_where_it_was(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "POST", "/api/v1/topics", {"name": topic, "partitions": 2})
    published(broker, topic, *range(10))
    first = events(broker, f"/topics/{topic}/records?offset=start", 4)
    rest = events(broker, f"/topics/{topic}/records", 6, last_event_id=first[-1][0])
    places = [(e["partition"], e["offset"]) for _, e in first + rest]
    assert len(set(places)) == 10, (
        "what an EventSource missed comes after it connects again, and nothing twice"
    )


# -- idempotency -----------------------------------------------------------------------------------------------------


def test_an_idempotency_key_is_stored_once(broker: BrokerProcess, topic: str) -> None:
    ask(broker, "POST", "/api/v1/topics", {"name": topic, "partitions": 4})
    one = [ask(broker, "POST", f"/topics/{topic}/records", b"x", idempotency_key="a").body for _ in range(3)]
    assert [row["records"][0]["duplicate"] for row in one] == [False, True, True]
    assert len({(row["records"][0]["partition"], row["records"][0]["offset"]) for row in one}) == 1
    batch = {"records": [{"value": n} for n in range(5)]}
    first = ask(broker, "POST", f"/topics/{topic}/records", batch, idempotency_key="b").body["records"]
    again = ask(broker, "POST", f"/topics/{topic}/records", batch, idempotency_key="b").body["records"]
    assert [(r["partition"], r["offset"]) for r in first] == [(r["partition"], r["offset"]) for r in again]
    assert all(r["duplicate"] for r in again)
    assert len(ask(broker, "GET", f"/topics/{topic}/records").body["items"]) == 6


def test_an_idempotency_key_outlives_the_broker(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """The log is the memory: after kill -9 the same key still finds its message, in topics and in queues."""
    broker = fresh_broker()
    paths = ("/topics/t/records", "/queues/q/messages")
    before = [ask(broker, "POST", path, b"x", idempotency_key="k").body for path in paths]
    broker.kill()
    broker.start()
    after = [ask(broker, "POST", path, b"x", idempotency_key="k").body for path in paths]
    assert after[0]["records"] == [{**before[0]["records"][0], "duplicate": True}]
    assert after[1] == {**before[1], "duplicate": True}
    assert len(ask(broker, "GET", "/queues/q/messages?peek&max=10").body["items"]) == 1


def test_a_client_that_gave_up_finds_its_record(broker: BrokerProcess, topic: str) -> None:
    """It hangs up before the answer and comes back with the same key, over and over."""
    ask(broker, "POST", "/api/v1/topics", {"name": topic})
    for number in range(20):
        with socket.create_connection(("127.0.0.1", broker.http_port)) as hasty:
            head = f"POST /topics/{topic}/records HTTP/1.1\r\nhost: x\r\nidempotency-key: k{number}\r\ncontent-length: 1\r\n\r\nx"
            hasty.sendall(head.encode())
        row = ask(broker, "POST", f"/topics/{topic}/records", b"x", idempotency_key=f"k{number}").body[
            "records"
        ][0]
        assert row["offset"] == number, "never twice"


# -- administration --------------------------------------------------------------------------------------------------


def test_the_life_of_a_topic(broker: BrokerProcess, topic: str) -> None:
    made = ask(
        broker,
        "POST",
        "/api/v1/topics",
        {"name": topic, "partitions": 2, "configs": {"retention.ms": "5000"}},
    )
    assert made.status == 201 and made.headers["location"] == f"/api/v1/topics/{topic}"
    assert ask(broker, "POST", "/api/v1/topics", {"name": topic}).status == 409
    assert topic in [t["name"] for t in ask(broker, "GET", "/api/v1/topics?fields=name").body["items"]]
    shown = ask(broker, "GET", f"/api/v1/topics/{topic}")
    assert shown.body["configs"]["retention.ms"]["value"] == "5000" and len(shown.body["partitions"]) == 2
    tag = shown.headers["etag"]
    path = f"/api/v1/topics/{topic}"
    grown = ask(broker, "PATCH", path, {"partitions": 3, "configs": {"retention.ms": None}}, if_match=tag)
    assert grown.status == 200 and grown.body["partition_count"] == 3 and grown.body["overrides"] == {}
    late = ask(broker, "PATCH", path, {"partitions": 9}, if_match=tag)
    assert late.status == 412 and "hint" in late.body, "somebody changed it since"
    published(broker, topic, "a", "b", "c", key="same")
    (place,) = {r["partition"] for r in ask(broker, "GET", f"/topics/{topic}/records").body["items"]}
    trimmed = ask(broker, "POST", f"{path}/trim", {"partition": place, "before_offset": 2})
    assert trimmed.body["start_offset"] == 2
    assert [r["value"] for r in ask(broker, "GET", f"/topics/{topic}/records").body["items"]] == ["c"]
    assert ask(broker, "DELETE", path).status == 204
    assert ask(broker, "GET", path).status == 404


def test_lists_have_pages(broker: BrokerProcess, topic: str) -> None:
    for number in range(5):
        ask(broker, "POST", "/api/v1/topics", {"name": f"{topic}-{number}"})
    seen: list[str] = []
    cursor = f"?cursor={topic}"
    while True:
        page = ask(broker, "GET", f"/api/v1/topics{cursor}&limit=2").body
        seen += [item["name"] for item in page["items"] if item["name"].startswith(f"{topic}-")]
        if page["next_cursor"] is None:
            break
        cursor = f"?cursor={page['next_cursor']}"
    assert seen == [f"{topic}-{number}" for number in range(5)]


def test_groups_with_their_lag(broker: BrokerProcess, topic: str) -> None:
    published(broker, topic, *range(10))
    group = f"g-{topic}"
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0,
                            "auto.offset.reset": "earliest", "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([topic])
    message = None
    deadline = time.monotonic() + 240
    while message is None:
        assert time.monotonic() < deadline
        message = consumer.poll(0.5)
    consumer.commit(message=message, asynchronous=False)
    shown = ask(broker, "GET", f"/api/v1/groups/{group}").body
    assert shown["lag"] == 9 and shown["members"][0]["assignment"] == [{"topic": topic, "partitions": [0]}]
    path = f"/api/v1/groups/{group}"
    assert ask(broker, "POST", f"{path}/seek", {"topic": topic, "to": "end"}).status in (400, 403, 409), (
        "it has members"
    )
    assert ask(broker, "DELETE", path).status == 409
    consumer.close()
    dry = ask(broker, "POST", f"{path}/seek", {"topic": topic, "to": "-3", "dry_run": True}).body
    assert dry["partitions"] == [{"topic": topic, "partition": 0, "from_offset": 1, "to_offset": 7}]
    assert ask(broker, "GET", path).body["lag"] == 9, "a dry run moves nothing"
    ask(broker, "POST", f"{path}/seek", {"topic": topic, "to": "-3"})
    assert ask(broker, "GET", path).body["lag"] == 3
    assert group in [g["name"] for g in ask(broker, "GET", "/api/v1/groups").body["items"]]
    assert ask(broker, "DELETE", path).status == 204
    assert ask(broker, "GET", path).body["code"] == "GROUP_ID_NOT_FOUND"


def test_subscriptions_have_a_place_of_their_own(broker: BrokerProcess, topic: str) -> None:
    published(broker, topic, "before")
    name = f"s-{topic}"
    made = ask(
        broker, "POST", "/api/v1/subscriptions", {"name": name, "topics": [topic], "start": "earliest"}
    )
    assert made.status == 201 and made.body["kind"] == "subscription"
    assert ask(broker, "POST", "/api/v1/subscriptions", {"name": "x"}).status == 400
    listed = ask(broker, "GET", "/api/v1/subscriptions").body["items"]
    assert name in [item["name"] for item in listed] and all(
        item["kind"] == "subscription" for item in listed
    )
    (message,) = ask(broker, "POST", f"/queues/{name}/receive?wait=10s").body["items"]
    assert message["value"] == "before"
    status = ask(broker, "GET", f"/queues/{name}/messages/{message['message_id']}/status").body
    assert status == {"state": "acquired", "deliveries": 1}
    assert ask(broker, "DELETE", f"/queues/{name}/messages/{message['receipt']}").status == 204
    assert ask(broker, "DELETE", f"/api/v1/subscriptions/{name}").status == 204
    assert ask(broker, "GET", f"/api/v1/topics/{topic}").status == 200, "its topic stays"


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("PUT", "/api/v1/topics", None, 405),
        ("GET", "/api/v1/topics/missing", None, 404),
        ("GET", "/api/v1/groups/missing", None, 404),
        ("GET", "/api/v1/queues/missing", None, 404),
        ("GET", "/topics/missing/records", None, 404),
        ("POST", "/queues/missing/receive", None, 404),
        ("GET", "/queues/missing/messages?peek", None, 404),
        ("POST", "/api/v1/topics", b"{", 400),
        ("POST", "/api/v1/topics", {"name": "a", "partition": 3}, 400),
        ("POST", "/api/v1/topics", {"name": "no/slash"}, 400),
        ("POST", "/topics/__consumer_offsets/records", {"value": "x"}, 400),
        ("POST", "/api/v1/topics", {"name": "__mine"}, 400),
        ("GET", "/api/v1/topics?limit=0", None, 400),
        ("GET", "/api/v1/topics?limit=1&limit=2", None, 400),
        ("DELETE", "/queues/missing/messages/nonsense", None, 404),
    ],
)
def test_refusals_are_problems(broker: BrokerProcess, method: str, path: str, body: Any, status: int) -> None:
    got = ask(broker, method, path, body, content_type="application/json", x_request_id="mine-7")
    assert (got.status, got.headers["content-type"]) == (status, "application/problem+json")
    assert {"type", "title", "status", "detail", "code", "instance"} <= set(got.body), got.body
    assert got.body["request_id"] == got.headers["x-request-id"] == "mine-7"
    assert got.body.get("hint"), got.body


def test_the_document_is_served(broker: BrokerProcess) -> None:
    got = ask(broker, "GET", "/openapi.json")
    assert got.status == 200 and got.body["openapi"] == "3.1.0"
    assert "/topics/{topic}/records" in got.body["paths"]


def test_the_cluster_in_one_look(broker: BrokerProcess) -> None:
    shown = ask(broker, "GET", "/api/v1/cluster").body
    assert shown["brokers"][0]["kafka"] == broker.bootstrap and shown["offline_partitions"] == 0
