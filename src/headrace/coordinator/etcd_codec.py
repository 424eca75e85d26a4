"""Codec: the bodies of etcd's JSON gateway.

The gateway writes 64-bit integers as text, bytes as base64, and leaves out what has its default value: a missing
`succeeded` is false, and a keep-alive answer without `TTL` means that the lease is gone (etcd rule 3). What comes back
is validated like any client's input (X27): a body of another shape is a `GatewayError`, and a key that is not ours or
not text is left out.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace.coordinator.port import (
    RESERVED_LEAF,
    Compare,
    CompareTarget,
    Delete,
    Event,
    KeyValue,
    Operation,
    Put,
    prefix_end,
)

T = TypeVar("T")


class GatewayError(ValueError):
    """The server's answer is not what the gateway would send."""


class EtcdHeader(msgspec.Struct, frozen=True):
    revision: int = 0


_NO_HEADER = EtcdHeader()


class Kv(msgspec.Struct, frozen=True):
    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeReply(msgspec.Struct, frozen=True):
    header: EtcdHeader = _NO_HEADER
    kvs: tuple[Kv, ...] = ()
    more: bool = False


class TxnReply(msgspec.Struct, frozen=True):
    header: EtcdHeader = _NO_HEADER
    succeeded: bool = False


class LeaseReply(msgspec.Struct, frozen=True):
    """Of a grant and of a keep-alive."""

    ID: int = 0
    TTL: int = 0


class TokenReply(msgspec.Struct, frozen=True):
    token: str = ""


class WatchEvent(msgspec.Struct, frozen=True):
    kv: Kv
    type: str = "PUT"


class WatchReply(msgspec.Struct, frozen=True):
    header: EtcdHeader = _NO_HEADER
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: tuple[WatchEvent, ...] = ()


class StreamError(msgspec.Struct, frozen=True):
    grpc_code: int = 2
    message: str = ""


class _WatchFrame(msgspec.Struct, frozen=True):
    result: WatchReply | None = None
    error: StreamError | None = None


class _LeaseFrame(msgspec.Struct, frozen=True):
    result: LeaseReply | None = None
    error: StreamError | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    code: int = 2
    message: str = ""
    error: str = ""


class GrpcFailure(NamedTuple):
    """A gRPC status."""

    code: int
    message: str


def decode(kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GatewayError(f"unexpected answer from etcd: {error}") from error


def decode_watch_frame(line: bytes) -> WatchReply | GrpcFailure:
    frame = decode(_WatchFrame, line)
    if frame.error is not None:
        return GrpcFailure(frame.error.grpc_code, frame.error.message)
    if frame.result is None:
        raise GatewayError("a watch frame with neither result nor error")
    return frame.result


def decode_keep_alive(body: bytes) -> LeaseReply | GrpcFailure:
    """The gateway answers with a stream of one frame; nothing at all is how some versions say "gone"."""
    frame = decode(_LeaseFrame, body.strip() or b"{}")
    if frame.error is not None:
        return GrpcFailure(frame.error.grpc_code, frame.error.message)
    return frame.result or LeaseReply()


def decode_failure(body: bytes) -> GrpcFailure:
    """Of an answer whose HTTP status is not 200. What cannot be read is code 2, unknown."""
    try:
        parsed = decode(_ErrorBody, body)
    except GatewayError:
        return GrpcFailure(2, body[:200].decode("utf-8", "replace"))
    return GrpcFailure(parsed.code, parsed.message or parsed.error)


class Namespace:
    """Where in etcd's flat key space this cluster lives, and the requests in terms of it."""

    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def range(self, key: str) -> bytes:
        return _json({"key": self._key(key), "limit": "1"})

    def range_page(self, prefix: str, *, after: bytes | None, revision: int, limit: int) -> bytes:
        """A page of the keys under a prefix, from behind the raw key `after`, as of `revision` (0: now)."""
        start = self._key(prefix) if after is None else _b64(after + b"\0")
        body = {"key": start, "range_end": self._end(prefix), "limit": str(limit)}
        if revision:
            body["revision"] = str(revision)
        return _json(body)

    def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> bytes:
        return _json(
            {
                "compare": [self._compare(compare) for compare in compares],
                "success": [self._operation(operation) for operation in operations],
            }
        )

    def watch(self, prefix: str, start_revision: int) -> bytes:
        return _json(
            {
                "create_request": {
                    "key": self._key(prefix),
                    "range_end": self._end(prefix),
                    "start_revision": str(start_revision),
                    "progress_notify": True,
                }
            }
        )

    def heartbeat(self, prefix: str) -> bytes:
        put = {"key": self._key(prefix + RESERVED_LEAF), "value": ""}
        return _json({"success": [{"request_put": put}]})

    def key_value(self, kv: Kv) -> KeyValue | None:
        """None for a key that is none of the caller's: the heartbeat, or one that no Headrace wrote (X27)."""
        key = self._own_key(kv.key)
        if key is None:
            return None
        return KeyValue(key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)

    def event(self, event: WatchEvent) -> Event | None:
        kv = event.kv
        key = self._own_key(kv.key)
        if key is None:
            return None
        if event.type == "DELETE":
            return Event(key, None, 0, kv.mod_revision)
        return Event(key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)

    def _own_key(self, raw: bytes) -> str | None:
        try:
            key = raw.decode()
        except UnicodeDecodeError:
            return None
        own = key.removeprefix(self._prefix)
        ours = key.startswith(self._prefix) and own and own.isprintable() and not own.endswith(RESERVED_LEAF)
        return own if ours else None

    def _compare(self, compare: Compare) -> dict[str, Any]:
        body: dict[str, Any] = {"key": self._key(compare.key), "result": "EQUAL"}
        if isinstance(compare.expected, bytes):
            return {**body, "target": "VALUE", "value": _b64(compare.expected)}
        target, name = _REVISION_TARGETS[compare.target]
        return {**body, "target": target, name: str(compare.expected)}

    def _operation(self, operation: Operation) -> dict[str, Any]:
        if isinstance(operation, Put):
            put = {"key": self._key(operation.key), "value": _b64(operation.value)}
            if operation.lease:
                put["lease"] = str(operation.lease)
            return {"request_put": put}
        if isinstance(operation, Delete):
            return {"request_delete_range": {"key": self._key(operation.key)}}
        bounds = {"key": self._key(operation.prefix), "range_end": self._end(operation.prefix)}
        return {"request_delete_range": bounds}

    def _key(self, key: str) -> str:
        # etcd spells "from the first key on" as a zero byte.
        return _b64((self._prefix + key).encode() or b"\0")

    def _end(self, prefix: str) -> str:
        end = prefix_end(self._prefix + prefix)
        return _b64(b"\0" if end is None else end.encode())  # a zero byte: to the last key


_REVISION_TARGETS = {
    CompareTarget.MOD_REVISION: ("MOD", "mod_revision"),
    CompareTarget.CREATE_REVISION: ("CREATE", "create_revision"),
    CompareTarget.LEASE: ("LEASE", "lease"),
}


def encode_grant(lease_id: int, ttl_s: int) -> bytes:
    return _json({"ID": str(lease_id), "TTL": str(ttl_s)})


def encode_lease_id(lease_id: int) -> bytes:
    """Of a keep-alive or a revocation."""
    return _json({"ID": str(lease_id)})


def encode_authenticate(user: str, password: str) -> bytes:
    return _json({"name": user, "password": password})


def _b64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _json(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body)
