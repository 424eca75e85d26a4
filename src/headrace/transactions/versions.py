"""Machine: which errors a client of an old API version understands. The door asks before it answers.

PRODUCER_FENCED (90) is newer than transactions: old versions know it as INVALID_PRODUCER_EPOCH (47), and clients such as
aiokafka die of the unknown code. TRANSACTION_ABORTABLE (120, KIP-890) has INVALID_TXN_STATE (48) as its older sister.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind

PRODUCE = 0
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
TXN_OFFSET_COMMIT = 28

_FENCED_SINCE = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
_ABORTABLE_SINCE = {
    PRODUCE: 11,
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS_TO_TXN: 5,
    ADD_OFFSETS_TO_TXN: 4,
    END_TXN: 4,
    TXN_OFFSET_COMMIT: 4,
}
_NEVER = 1 << 15

EPOCH_BUMP_SINCE_END_TXN = 5
IMPLICIT_ADD_SINCE_PRODUCE = 12
"""Transaction version 2 as it shows in requests (KIP-890 part 2)."""


def error_for_version(api_key: int, version: int, error: ErrorKind) -> ErrorKind:
    """`error`, or what a client of this version calls it."""
    if error is ErrorKind.PRODUCER_FENCED and version < _FENCED_SINCE.get(api_key, _NEVER):
        # Produce and TxnOffsetCommit never learnt it.
        return ErrorKind.INVALID_PRODUCER_EPOCH
    if error is ErrorKind.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE.get(api_key, _NEVER):
        return ErrorKind.INVALID_TXN_STATE
    return error
