"""Codec: Init Producer Id (API key 22).

v3: resume with a known id and epoch (KIP-360). v6: two-phase commit (KIP-939).
"""

from __future__ import annotations

from headrace.wire.schema import boolean, int16, int32, int64, message, string


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest:
    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(-1, since=3)
    producer_epoch: int = int16(-1, since=3)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(-1, since=6)
    ongoing_txn_producer_epoch: int = int16(-1, since=6)
