"""The gateway's JSON: defaults that are left out (etcd rule 3), and answers nobody should send (X27)."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator import etcd_codec as codec
from headrace.coordinator.etcd_calls import EtcdRefusal, judge
from headrace.coordinator.port import (
    RESERVED_LEAF,
    Compare,
    CoordinatorUnavailable,
    Delete,
    DeletePrefix,
    Event,
    OutcomeUnknown,
    Put,
)


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_rule_3_what_is_left_out_has_its_default() -> None:
    assert codec.decode(codec.TxnReply, b'{"header":{"revision":"7"}}').succeeded is False
    assert codec.decode(codec.TxnReply, b'{"header":{"revision":"7"},"succeeded":true}').header.revision == 7
    gone = codec.decode_keep_alive(b'{"result":{"header":{"revision":"7"},"ID":"12"}}\n')
    assert isinstance(gone, codec.LeaseReply) and gone.TTL == 0
    assert codec.decode_keep_alive(b"") == codec.LeaseReply()
    alive = codec.decode_keep_alive(b'{"result":{"ID":"9223372036854775807","TTL":"5"}}\n')
    assert alive == codec.LeaseReply(ID=9223372036854775807, TTL=5)
    reply = codec.decode(codec.RangeReply, b'{"header":{"revision":"3"}}')
    assert reply.kvs == () and not reply.more


def test_watch_frames() -> None:
    namespace = codec.Namespace("/ns/")
    frame = {
        "result": {
            "header": {"cluster_id": "1", "revision": "6001"},
            "events": [
                {"kv": {"key": b64("/ns/a"), "value": b64("v"), "create_revision": "5", "mod_revision": "6"}},
                {"type": "DELETE", "kv": {"key": b64("/ns/b"), "mod_revision": "7"}},
                {"kv": {"key": b64("/ns/w/" + RESERVED_LEAF), "mod_revision": "8"}},
            ],
        }
    }
    reply = codec.decode_watch_frame(json.dumps(frame).encode())
    assert isinstance(reply, codec.WatchReply)
    assert [namespace.event(event) for event in reply.events] == [
        Event("a", b"v", 5, 6),
        Event("b", None, 0, 7),
        None,
    ]
    compacted = codec.decode_watch_frame(b'{"result":{"canceled":true,"compact_revision":"6"}}')
    assert isinstance(compacted, codec.WatchReply) and compacted.compact_revision == 6
    failure = codec.decode_watch_frame(b'{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}')
    assert failure == codec.GrpcFailure(14, "no leader")


def test_requests_live_in_their_namespace() -> None:
    namespace = codec.Namespace("/ns/")
    body = json.loads(
        namespace.txn(
            [
                Compare.mod_revision("a", 5),
                Compare.value("b", b""),
                Compare.lease("c", 1 << 62),
                Compare.mod_revision("d", 0),
            ],
            [Put("a", b"\xff", lease=7), Put("b", b""), Delete("c"), DeletePrefix("d/")],
        )
    )
    keys = [b64decode(one["key"]) for one in body["compare"]]
    assert keys == [b"/ns/a", b"/ns/b", b"/ns/c", b"/ns/d"]
    assert [one["target"] for one in body["compare"]] == ["MOD", "VALUE", "LEASE", "MOD"]
    assert body["compare"][2]["lease"] == str(1 << 62)
    assert body["success"][0]["request_put"] == {"key": b64("/ns/a"), "value": "/w==", "lease": "7"}
    assert "lease" not in body["success"][1]["request_put"]
    assert "range_end" not in body["success"][2]["request_delete_range"]
    assert body["success"][3]["request_delete_range"] == {"key": b64("/ns/d/"), "range_end": b64("/ns/d0")}
    whole = json.loads(codec.Namespace("").range_page("", after=None, revision=0, limit=5))
    assert whole == {"key": "AA==", "range_end": "AA==", "limit": "5"}


@pytest.mark.parametrize(
    "raw", [b"/ns/\xff", b"/other/a", b"/ns/", b"/ns/a\nb", b"/ns/\x00", b"/ns/w/" + RESERVED_LEAF.encode()]
)
def test_x27_keys_that_are_not_ours_are_left_out(raw: bytes) -> None:
    namespace = codec.Namespace("/ns/")
    assert namespace.key_value(codec.Kv(key=raw)) is None
    assert namespace.event(codec.WatchEvent(kv=codec.Kv(key=raw))) is None


field_names = st.sampled_from(
    ["result", "error", "header", "revision", "events", "kv", "key", "kvs", "TTL", "code", "message", "x"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(field_names, inner, max_size=4),
    max_leaves=8,
)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_x27_any_answer_is_a_value_or_a_gateway_error(body: bytes) -> None:
    for kind in (codec.RangeReply, codec.TxnReply, codec.LeaseReply, codec.TokenReply, codec.WatchReply):
        try:
            assert isinstance(codec.decode(kind, body), kind)
        except codec.GatewayError:
            pass
    for decoder in (codec.decode_watch_frame, codec.decode_keep_alive):
        try:
            decoder(body)
        except codec.GatewayError:
            pass
    assert isinstance(codec.decode_failure(body), codec.GrpcFailure)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (14, "etcdserver: request timed out", OutcomeUnknown),
        (14, "etcdserver: leader changed", OutcomeUnknown),
        (4, "context deadline exceeded", OutcomeUnknown),
        (2, "who knows", OutcomeUnknown),
        (13, "internal", OutcomeUnknown),
        (14, "etcdserver: no leader", CoordinatorUnavailable),
        (8, "etcdserver: too many requests", CoordinatorUnavailable),
        (8, "etcdserver: mvcc: database space exceeded", EtcdRefusal),
        (5, "etcdserver: requested lease not found", EtcdRefusal),
        (7, "etcdserver: permission denied", EtcdRefusal),
        (16, "etcdserver: invalid auth token", EtcdRefusal),
        (3, "etcdserver: key is not provided", EtcdRefusal),
    ],
)
def test_r5_which_answers_leave_the_outcome_open(code: int, message: str, expected: type[Exception]) -> None:
    assert type(judge(codec.GrpcFailure(code, message))) is expected
