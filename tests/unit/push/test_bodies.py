"""Messages as requests: raw, JSON, CloudEvents; whatever a producer wrote stays inside its header."""

from __future__ import annotations

import json
from base64 import b64decode
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.net.h1_client import Origin, encode_request
from headrace.push import bodies
from headrace.push.bodies import Form, PushMessage
from headrace.push.courier import MAX_BODY_BYTES, Job, Result, cut, split
from headrace.push.verdict import judge
from headrace.queues.commands import Handle, Source
from headrace.records.build import Record

FORMS: list[Form] = ["raw", "json", "cloudevents", "cloudevents-structured"]


def message(
    value: bytes | None = b'{"a":1}',
    key: bytes | None = b"k",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> PushMessage:
    return PushMessage("id-1", "orders", 3, 2, Record(key, value, headers, 1_790_000_000_123, 42))


def test_raw_is_the_value_as_it_is() -> None:
    made = bodies.one(
        "raw", message(headers=(("Kind", b"a b"), ("headrace-delay-ms", b"5"), ("bad name", b"x")))
    )
    assert made.body == b'{"a":1}'
    assert made.headers == {
        "content-type": "application/json",
        "headrace-topic": "orders",
        "headrace-partition": "3",
        "headrace-offset": "42",
        "headrace-time": "2026-09-21T14:13:20.123Z",
        "headrace-attempt": "2",
        "headrace-key": "k",
        "headrace-header-kind": "a%20b",
    }


def test_json_says_everything() -> None:
    made = bodies.one("json", message(value=b"\xff\x00", headers=(("h", None),)))
    document = json.loads(made.body)
    assert document["type"] == "headrace.message"
    assert document["data"]["value"] == {"base64": "/wA="}
    assert document["data"]["headers"] == {"h": None} and document["data"]["attempt"] == 2


def test_cloudevents_binary() -> None:
    made = bodies.one("cloudevents", message(key='ü "%'.encode()))
    assert made.body == b'{"a":1}' and made.headers["content-type"] == "application/json"
    assert made.headers["ce-specversion"] == "1.0" and made.headers["ce-id"] == "id-1"
    assert (
        made.headers["ce-source"] == "/topics/orders/partitions/3"
        and made.headers["ce-type"] == "headrace.message"
    )
    assert made.headers["ce-partitionkey"] == "%C3%BC%20%22%25"
    assert "ce-datacontenttype" not in made.headers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1}', {"data": {"a": 1}}),
        (b"plain", {"data": "plain"}),
        (b"\xff", {"data_base64": "/w=="}),
        (b"{not json", {"data": "{not json"}),
        (None, {}),
    ],
)
def test_cloudevents_structured(value: bytes | None, expected: dict[str, object]) -> None:
    made = bodies.one("cloudevents-structured", message(value))
    event = json.loads(made.body)
    assert made.headers == {"content-type": "application/cloudevents+json"}
    assert {name: event[name] for name in ("data", "data_base64") if name in event} == expected
    assert event["specversion"] == "1.0" and event["sequence"] == "42"


def test_a_record_that_is_a_cloudevent_stays_itself() -> None:
    headers = (("ce_id", b"x1"), ("ce_source", b"/shop"), ("ce_type", b"order.paid"), ("ce_specversion", b"0.3"),
               ("ce_datacontenttype", b"text/x"), ("ce_data", b"no"), ("ce_tenant", b"a"))  # fmt: skip
    event = json.loads(bodies.one("cloudevents-structured", message(headers=headers)).body)
    assert (event["id"], event["source"], event["type"], event["tenant"]) == (
        "x1",
        "/shop",
        "order.paid",
        "a",
    )
    assert (
        event["specversion"] == "1.0" and event["datacontenttype"] == "text/x" and event["data"] == '{"a":1}'
    )


def test_batches() -> None:
    both = [message(b"1"), message(b'{"b":2}')._replace(id="id-2")]
    plain = json.loads(bodies.many("json", both).body)
    assert [entry["message_id"] for entry in plain["data"]] == ["id-1", "id-2"]
    made = bodies.many("cloudevents", both)
    assert made.headers == {"content-type": "application/cloudevents-batch+json"} and made.id == "id-1.2"
    assert [event["id"] for event in json.loads(made.body)] == ["id-1", "id-2"]


_HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=40)), max_size=6).map(
    tuple
)


@given(
    st.sampled_from(FORMS), st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=30), _HEADERS,
    st.integers(-(2**63), 2**63 - 1),
)  # fmt: skip
def test_no_producer_can_smuggle_a_header_or_break_the_request(
    form: Form,
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
) -> None:
    headers += (
        ("content-type", b"a\r\nx: y"),
        ("ce_type", b"a\r\nx: y"),
        ("ce_datacontenttype", b"b\r\nx: y"),
    )
    sent = PushMessage("id-1", "orders", 3, 2, Record(key, value, headers, timestamp, 42))
    made = bodies.one(form, sent)
    raw = encode_request(Origin("h", 80), "POST", "/", made.headers, made.body)
    head = raw[: len(raw) - len(made.body)]
    assert head.count(b"\r\n\r\n") == 1 and b"\r\nx: y" not in head
    if form == "raw" and key is not None:
        assert unquote_to_bytes(made.headers["headrace-key"]) == key
    if form == "json":
        shown = json.loads(made.body)["data"]["value"]
        if isinstance(shown, dict):
            assert b64decode(shown["base64"]) == value
        else:
            assert shown == (None if value is None else value.decode())
    bodies.many("json" if form == "raw" else form, [sent, sent])


def test_large_headers_are_left_out_and_not_sent() -> None:
    many = tuple((f"h{number}", b"x" * 900) for number in range(100))
    for form in FORMS:
        made = bodies.one(form, message(headers=tuple((f"ce_{n}", v) for n, v in many) + many))
        assert sum(len(n) + len(v) for n, v in made.headers.items()) < 20_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"failures": ["b"]}', {"b"}),
        (b'{"failures": ["b", "zz", 3]}', {"b"}),
        (b'{"failures": "b"}', set()),
        (b'["failures"]', set()),
        (b'{"failures": [', set()),
        (b"ok", set()),
    ],
)
def test_partial_failures(body: bytes, expected: set[str]) -> None:
    assert bodies.failures_in(body, ["a", "b"]) == expected


# -- cutting and splitting ---------------------------------------------------------------------------------------------


def delivery(offset: int, key: bytes = b"", size: int = 10) -> DeliveredMessage:
    return DeliveredMessage(
        Source("q", "t", 0), Record(key, b"x" * size, offset=offset), Handle(offset, 1, 1), 0, str(offset)
    )


@given(st.lists(st.integers(0, MAX_BODY_BYTES * 2), max_size=12), st.integers(1, 10))
def test_requests_are_cut_in_order_and_bounded(sizes: list[int], batch_size: int) -> None:
    given_ = [delivery(offset, size=size) for offset, size in enumerate(sizes)]
    jobs = cut(given_, batch_size)
    assert [one for job in jobs for one in job.deliveries] == given_
    for job in jobs:
        assert 1 <= len(job.deliveries) <= batch_size
        assert job.size <= MAX_BODY_BYTES or len(job.deliveries) == 1


def test_r59_what_is_behind_a_refused_one_of_its_group_is_refused_too() -> None:
    batch = tuple(delivery(offset, group) for offset, group in enumerate((b"a", b"b", b"a", b"b", b"a")))
    result = Result(judge(200), 200, "", None, frozenset({"2"}))
    taken, refused = split(Job(batch, 0, in_order=True), result)
    assert [one.message_id for one in taken] == ["0", "1", "3"]
    assert [one.message_id for one in refused] == ["2", "4"]
    taken, refused = split(Job(batch, 0), result)
    assert [one.message_id for one in refused] == ["2"]
    failed = Result(judge(500), 500, "", None, frozenset())
    assert split(Job(batch, 0), failed) == ([], list(batch))
