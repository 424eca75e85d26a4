"""Codec: who leads a partition now, and where that broker listens (KIP-951).

Produce and Fetch carry it in tagged fields next to NOT_LEADER_OR_FOLLOWER, which saves the client a Metadata round trip.
Invariant: an absent leader is never written; 0/0 would read as "broker 0 leads".
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headrace.wire.primitives import Reader, Writer

LEADER = Struct(">iix")


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


NO_LEADER = LeaderIdAndEpoch()


def read_leader(reader: Reader) -> LeaderIdAndEpoch:
    leader = LeaderIdAndEpoch(reader.int32(), reader.int32())
    reader.tags()
    return leader


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    writer = Writer()
    writer.count(len(endpoints))
    for node_id, host, port, rack in endpoints:
        writer.int32(node_id)
        writer.string(host)
        writer.int32(port)
        writer.string(rack)
        writer.tags()
    return writer.join()


def read_endpoints(reader: Reader) -> list[NodeEndpoint]:
    return reader.array(11, _read_endpoint)


def _read_endpoint(reader: Reader) -> NodeEndpoint:
    endpoint = NodeEndpoint(reader.int32(), reader.string(), reader.int32(), reader.nullable_string())
    reader.tags()
    return endpoint
