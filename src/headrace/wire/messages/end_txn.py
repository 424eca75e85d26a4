"""Codec: End Txn (API key 26): v5: answers with the bumped epoch (KIP-890)."""

from __future__ import annotations

from headrace.wire.schema import boolean, int16, int32, int64, message, string


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(-1, since=5)
    producer_epoch: int = int16(-1, since=5)
