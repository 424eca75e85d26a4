"""Codec: the zig-zag varints inside records (32 bits for lengths and counts, 64 for timestamps).

Invariant: readers take at most 5 (10) bytes, raise IndexError at the end of the data and CorruptBatch beyond the width.
"""

from __future__ import annotations

from headrace.records.batch import CorruptBatch


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, 5, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long(data, position, 10, 64)


def _read_long(data: bytes, position: int, max_bytes: int, bits: int) -> tuple[int, int]:
    value = 0
    for index in range(max_bytes):
        byte = data[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise CorruptBatch(f"a varint of more than {bits} bits")


def append_varint(target: bytearray, value: int) -> None:
    """Both widths: the caller's value decides how many bytes it takes."""
    encoded = value << 1 if value >= 0 else (-value << 1) - 1
    while encoded > 0x7F:
        target.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    target.append(encoded)
