"""Codec: which partition a key belongs to, for a whole column at once: murmur2 as every Kafka client has it, so that a key
written by Spark lands where the same key written by anybody else does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.spark.columns.ragged import Ragged

_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_R = np.uint32(24)

Words = npt.NDArray[np.uint32]


def key_partitions(keys: Ragged, partitions: int) -> npt.NDArray[np.int64]:
    hashes = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return (hashes % np.uint32(partitions)).astype(np.int64)


def murmur2(values: Ragged) -> Words:
    """Word by word over all values that still have one; cost goes with the longest key, not with the number of keys."""
    lengths, starts = values.lengths, values.offsets[:-1]
    size = int(lengths[0]) if lengths.size else 0
    if size and size % 4 == 0 and (lengths == size).all():
        return _mix(_whole_words(values.contiguous().reshape(-1, size)))
    found: Words = (np.uint32(_SEED) ^ lengths.astype(np.uint32)).astype(np.uint32)
    data = values.data
    for index in range(int(lengths.max(initial=0)) // 4):
        live = np.flatnonzero(lengths >= 4 * index + 4)
        at = starts[live] + 4 * index
        word = _word(data, at, 4) * _M
        word ^= word >> _R
        found[live] = found[live] * _M ^ word * _M
    rest = lengths & 3
    live = np.flatnonzero(rest)
    if live.size:
        at = starts[live] + (lengths[live] & ~3)
        found[live] = (found[live] ^ _tail(data, at, rest[live])) * _M
    return _mix(found)


def _whole_words(rows: npt.NDArray[np.uint8]) -> Words:
    """Keys of one length, a multiple of four: what numbers and UUIDs are."""
    words = np.ascontiguousarray(rows).view("<u4")
    found: Words = np.full(len(rows), _SEED ^ rows.shape[1], dtype=np.uint32)
    for column in words.T:
        word = column * _M
        word ^= word >> _R
        found = found * _M ^ word * _M
    return found


def _mix(found: Words) -> Words:
    found ^= found >> np.uint32(13)
    found *= _M
    found ^= found >> np.uint32(15)
    return found


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int) -> Words:
    word: Words = data[at].astype(np.uint32)
    for index in range(1, size):
        word |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _tail(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], rest: npt.NDArray[np.int64]) -> Words:
    tail: Words = data[at].astype(np.uint32)
    for index in (1, 2):
        more = np.flatnonzero(rest > index)
        tail[more] |= data[at[more] + index].astype(np.uint32) << np.uint32(8 * index)
    return tail
