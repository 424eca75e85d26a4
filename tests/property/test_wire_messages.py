"""Every message in every version: what goes in comes out, and hostile bytes give a value or ProtocolError, nothing else.

Values are made from the schema itself; the hand-written Produce and Fetch have their own strategies.
"""

from __future__ import annotations

import functools
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.core.ids import ZERO_UUID
from headrace.wire import fetch, fetch_response, produce
from headrace.wire.api import API
from headrace.wire.codec import decode, encode, encode_buffers, versions
from headrace.wire.leader_hint import NO_LEADER, LeaderIdAndEpoch, NodeEndpoint
from headrace.wire.primitives import ProtocolError
from headrace.wire.schema import STRUCTS, FieldKind, FieldSpec

GENERAL = [
    *(m for spec in API.values() for m in (spec.request, spec.response) if m in STRUCTS),
]
BY_HAND = [
    produce.ProduceRequest,
    produce.ProduceResponse,
    fetch.FetchRequest,
    fetch_response.FetchResponse,
]
EVERY = [pytest.param(m, v, id=f"{m.__name__}-v{v}") for m in [*GENERAL, *BY_HAND] for v in versions(m)]
each_message = pytest.mark.parametrize("message", [*GENERAL, *BY_HAND], ids=lambda m: m.__name__)
quick = settings(deadline=None, max_examples=15, suppress_health_check=list(HealthCheck))


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


INT16, INT32, INT64 = signed(16), signed(32), signed(64)
TEXT = st.text(max_size=5) | st.just("x" * 130)
BYTES = st.binary(max_size=5) | st.just(bytes(200))
UUID = st.binary(min_size=16, max_size=16)
PRIMITIVE: dict[FieldKind, st.SearchStrategy[Any]] = {
    FieldKind.BOOL: st.booleans(),
    FieldKind.INT8: signed(8),
    FieldKind.INT16: INT16,
    FieldKind.UINT16: st.integers(0, 65535),
    FieldKind.INT32: INT32,
    FieldKind.INT64: INT64,
    FieldKind.FLOAT64: st.floats(allow_nan=False),
    FieldKind.UUID: UUID,
    FieldKind.STRING: TEXT,
    FieldKind.BYTES: BYTES,
    FieldKind.RECORDS: BYTES,
}


def field_values(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    if spec.kind is FieldKind.STRUCT:
        assert spec.struct is not None
        values: st.SearchStrategy[Any] = struct_values(spec.struct, version)  # type: ignore[arg-type]
    elif spec.kind is FieldKind.ARRAY:
        assert spec.element is not None
        kind, inner = spec.element
        element = PRIMITIVE[kind] if inner is None else struct_values(inner, version)  # type: ignore[arg-type]
        values = st.lists(element, max_size=2)
        if inner is None:
            values |= st.lists(element, min_size=20, max_size=20)
    else:
        values = PRIMITIVE[spec.kind]
    return values | st.none() if version >= spec.nullable else values


@functools.cache
def struct_values(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    return st.builds(
        cls, **{spec.name: field_values(spec, version) for spec in STRUCTS[cls] if spec.carried_by(version)}
    )


def when(condition: bool, values: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    return values if condition else st.just(otherwise)


def topic_of(values: Any, cls: type[Any], version: int) -> st.SearchStrategy[list[Any]]:
    by_id = version >= 13
    row = st.builds(
        cls, when(not by_id, TEXT, ""), when(by_id, UUID, ZERO_UUID), st.lists(values, max_size=2)
    )
    return st.lists(row, max_size=2)


ENDPOINTS = st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, TEXT | st.none()), max_size=2).map(tuple)
LEADER = st.builds(LeaderIdAndEpoch, INT32, INT32) | st.just(NO_LEADER)


@functools.cache
def hand_values(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    if cls is produce.ProduceRequest:
        sent = st.builds(produce.ProducePartition, INT32, BYTES | st.none())
        return st.builds(cls, TEXT | st.none(), INT16, INT32, topic_of(sent, produce.ProduceTopic, version))
    if cls is produce.ProduceResponse:
        errors = st.lists(st.builds(produce.RecordError, INT32, TEXT | st.none()), max_size=2).map(tuple)
        stored = st.builds(
            produce.ProducePartitionResponse,
            INT32,
            INT16,
            INT64,
            INT64,
            when(version >= 5, INT64, -1),
            when(version >= 8, errors, ()),
            when(version >= 8, TEXT | st.none(), None),
            when(version >= 10, LEADER, NO_LEADER),
        )
        topics = topic_of(stored, produce.ProduceTopicResponse, version)
        return st.builds(cls, topics, INT32, when(version >= 10, ENDPOINTS, ()))
    if cls is fetch.FetchRequest:
        asked = st.builds(
            fetch.FetchPartition,
            INT32,
            when(version >= 9, INT32, -1),
            INT64,
            when(version >= 12, INT32, -1),
            when(version >= 5, INT64, -1),
            INT32,
            when(version >= 17, UUID, ZERO_UUID),
            when(version >= 18, INT64, fetch.UNKNOWN_HIGH_WATERMARK),
        )
        return st.builds(
            cls,
            INT32,
            when(version >= 15, INT64, -1),
            INT32,
            INT32,
            INT32,
            signed(8),
            when(version >= 7, INT32, 0),
            when(version >= 7, INT32, -1),
            topic_of(asked, fetch.FetchTopic, version),
            when(version >= 7, topic_of(INT32, fetch.ForgottenTopic, version).map(tuple), ()),
            when(version >= 11, TEXT | st.just(""), ""),
            when(version >= 12, TEXT | st.none(), None),
            when(version >= 12, TEXT | st.just(""), ""),
        )
    aborted = st.lists(st.builds(fetch_response.AbortedTransaction, INT64, INT64), max_size=2).map(tuple)
    read = st.builds(
        fetch_response.FetchPartitionResponse,
        INT32,
        INT16,
        INT64,
        INT64,
        when(version >= 5, INT64, -1),
        aborted | st.none(),
        when(version >= 11, INT32, -1),
        BYTES | st.none(),
        when(version >= 12, st.builds(fetch_response.EpochEndOffset, INT32, INT64) | st.none(), None),
        when(version >= 12, LEADER, NO_LEADER),
        when(version >= 12, st.builds(fetch_response.SnapshotId, INT64, INT32) | st.none(), None),
    )
    topics = topic_of(read, fetch_response.FetchTopicResponse, version)
    session = when(version >= 7, INT16, 0), when(version >= 7, INT32, 0)
    return st.builds(cls, topics, *session, INT32, when(version >= 16, ENDPOINTS, ()))


def values_of(message: type[Any], version: int) -> st.SearchStrategy[Any]:
    return struct_values(message, version) if message in STRUCTS else hand_values(message, version)  # type: ignore[arg-type]


@each_message
@quick
@given(data=st.data())
def test_round_trip(message: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions(message)))
    value = data.draw(values_of(message, version))
    encoded = encode(value, version)
    assert decode(message, version, encoded) == value
    # From inside a larger, writable buffer, as a connection hands it over.
    assert decode(message, version, memoryview(bytearray(b"head" + encoded)), 4) == value
    assert b"".join(encode_buffers(value, version)) == encoded


def survives(message: type[Any], version: int, data: bytes) -> None:
    """The fuzz invariant: a value or ProtocolError."""
    try:
        decode(message, version, data)
    except ProtocolError:
        pass


@each_message
@quick
@given(data=st.data())
def test_random_bytes_give_a_value_or_protocol_error(message: type[Any], data: st.DataObject) -> None:
    survives(message, data.draw(st.sampled_from(versions(message))), data.draw(st.binary(max_size=80)))


@each_message
@quick
@given(data=st.data())
def test_mutated_messages_give_a_value_or_protocol_error(message: type[Any], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions(message)))
    mutant = bytearray(encode(data.draw(values_of(message, version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutant)))
        mutant[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    survives(message, version, bytes(mutant))


def filled(cls: type[Any], version: int) -> Any:
    """A value with something in every field this version carries."""
    sample: dict[FieldKind, Any] = {
        FieldKind.BOOL: True,
        FieldKind.FLOAT64: 1.5,
        FieldKind.UUID: bytes(range(16)),
        FieldKind.STRING: "né",
        FieldKind.BYTES: b"\x01\x02",
        FieldKind.RECORDS: b"\x03",
    }
    values: dict[str, Any] = {}
    for spec in STRUCTS[cls]:
        if not spec.carried_by(version):
            continue
        kind, inner = spec.element or (spec.kind, spec.struct)
        value = sample.get(kind, 7) if inner is None else filled(inner, version)
        values[spec.name] = [value, value] if spec.kind is FieldKind.ARRAY else value
    return cls(**values)


def filled_by_hand(cls: type[Any], version: int) -> Any:
    name, topic_id = ("t", ZERO_UUID) if version < 13 else ("", bytes(range(16)))
    leader, endpoints = LeaderIdAndEpoch(1, 2), (NodeEndpoint(1, "h", 9092, "r"),)
    if cls is produce.ProduceRequest:
        sent = [produce.ProducePartition(0, b"abc"), produce.ProducePartition(1, None)]
        return cls("tx", -1, 30_000, [produce.ProduceTopic(name, topic_id, sent)])
    if cls is produce.ProduceResponse:
        stored = [
            produce.ProducePartitionResponse(0, 6, 5, 4, 3, (produce.RecordError(1, "bad"),), "why", leader)
        ]
        return cls([produce.ProduceTopicResponse(name, topic_id, stored)], 1, endpoints)
    if cls is fetch.FetchRequest:
        asked = [fetch.FetchPartition(0, 1, 2, 3, 4, 5, bytes(range(16)), 6)]
        forgotten = (fetch.ForgottenTopic(name, topic_id, [1, 2]),)
        topics = [fetch.FetchTopic(name, topic_id, asked)]
        return cls(1, 2, 3, 4, 5, 1, 6, 7, topics, forgotten, "rack", "cluster")
    read = fetch_response.FetchPartitionResponse(
        0,
        6,
        5,
        4,
        3,
        (fetch_response.AbortedTransaction(1, 2),),
        2,
        b"abc",
        fetch_response.EpochEndOffset(1, 2),
        leader,
        fetch_response.SnapshotId(1, 2),
    )
    return cls([fetch_response.FetchTopicResponse(name, topic_id, [read])], 1, 2, 3, endpoints)


def example(message: type[Any], version: int) -> bytes:
    value = filled(message, version) if message in STRUCTS else filled_by_hand(message, version)
    return encode(value, version)


@pytest.mark.parametrize(("message", "version"), EVERY)
def test_a_cut_or_lengthened_message_is_refused(message: type[Any], version: int) -> None:
    whole = example(message, version)
    decode(message, version, whole)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(message, version, whole[:size])
    with pytest.raises(ProtocolError):
        decode(message, version, whole + b"\x00")


HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\xff\xff\xff\xff")


@pytest.mark.parametrize("message", [*GENERAL, *BY_HAND], ids=lambda m: m.__name__)
def test_x10_a_claimed_size_allocates_nothing(message: type[Any]) -> None:
    """X10: a huge count or length put anywhere costs no more memory than the bytes that are there."""
    for version in {versions(message)[0], versions(message)[-1]}:
        whole = example(message, version)
        places = range(0, len(whole), 1 + len(whole) // 60)
        mutants = [whole[:at] + huge + whole[at + len(huge) :] for at in places for huge in HUGE]
        survives(message, version, whole)
        tracemalloc.start()
        try:
            for mutant in mutants:
                survives(message, version, mutant)
            assert tracemalloc.get_traced_memory()[1] < 256 * 1024
        finally:
            tracemalloc.stop()
