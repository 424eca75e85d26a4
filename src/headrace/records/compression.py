"""Codec: the four compressions of a batch body, with a hard cap on what they may inflate to (X11).

Invariant: `inflate` never holds an output buffer larger than `max_bytes`, whatever the input claims, and raises
nothing but CorruptBatch.

How the cap holds. gzip is inflated by zlib, which is told the most it may return. The others by cramjam: its
`decompress_into` writes into a buffer of ours and fails when it is full, so the size of that buffer *is* the cap; cramjam's
growing decompressors are never used. What remains is choosing the buffer: each
format is walked from the outside (frame and block headers, never the data), which gives the size it claims and the
most it could possibly yield. The first attempt believes the claim, the second takes the bound, both under the cap.
The walk also refuses zstd windows above the cap: the decoder allocates the window before it sees any data.

Frames we write: snappy in xerial framing and lz4 with independent blocks, because Java clients refuse linked blocks
(which is what cramjam's own lz4 frames have).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from cramjam import DecompressionError, gzip, lz4, snappy, zstd

from headrace.core.limits import (
    ALWAYS_DECOMPRESSED_BYTES,
    KIB,
    MAX_DECOMPRESSED_BYTES,
    MAX_DECOMPRESSION_RATIO,
    MIB,
)
from headrace.core.ports import Buffer
from headrace.records.batch import CorruptBatch

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_LZ4_QUICK = 9


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Extent(NamedTuple):
    """What the outside of compressed data says: the size it claims (None: silent) and the most it can be."""

    claimed: int | None
    bound: int


def decompression_cap(compressed_bytes: int) -> int:
    """X11: what a batch that a client sends may inflate to. A small one may not become a huge one; but a ratio alone would
    refuse honest batches of zeros, so it counts only above what any batch may become."""
    return min(
        max(compressed_bytes * MAX_DECOMPRESSION_RATIO, ALWAYS_DECOMPRESSED_BYTES), MAX_DECOMPRESSED_BYTES
    )


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` as Kafka's compression.*.level counts; None is the codec's own default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(gzip.compress(data, level=_GZIP_LEVEL if level in (None, -1) else level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, _LZ4_QUICK if level is None else level)
    if codec == Codec.ZSTD:
        return bytes(zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise ValueError(f"there is no codec {codec}")


def inflate(codec: int, data: Buffer, max_bytes: int) -> memoryview:
    """The plain bytes, or CorruptBatch when they are damaged or more than `max_bytes`."""
    view = memoryview(data)
    if codec == Codec.NONE:
        if len(view) > max_bytes:
            raise CorruptBatch(f"{len(view)} bytes where at most {max_bytes} are allowed")
        return view
    walk_and_inflate = _INFLATERS.get(codec)
    if walk_and_inflate is None:
        raise CorruptBatch(f"there is no codec {codec}")
    try:
        return walk_and_inflate(view, max_bytes)
    except (DecompressionError, zlib.error) as error:
        raise CorruptBatch(
            f"damaged {Codec(codec).name.lower()} data, or more than {max_bytes} bytes: {error}"
        ) from None
    except (struct.error, IndexError):
        raise CorruptBatch(f"{Codec(codec).name.lower()} data is cut short") from None


# ---- one attempt at the claimed size, one at the bound


def _inflate_within(
    decompress_into: Callable[..., Any], data: memoryview, extent: Extent, cap: int
) -> memoryview:
    if extent.claimed is not None and extent.claimed > cap:
        raise CorruptBatch(f"it claims to hold {extent.claimed} bytes where at most {cap} are allowed")
    bound = min(extent.bound, cap)
    guess = 8 * len(data) + 64 * KIB if extent.claimed is None else extent.claimed
    if guess < bound:
        output = bytearray(guess)
        try:
            return memoryview(output)[: decompress_into(data, output)]
        except DecompressionError:
            pass  # too small or damaged: the attempt at the bound tells which
    output = bytearray(bound)
    return memoryview(output)[: decompress_into(data, output)]


# ---- gzip (RFC 1952)

_GZIP_FORMAT = 31  # for zlib: a gzip header, and the window of 32 KiB
_GZIP_READ_BYTES = 16 * KIB
_GZIP_WRITE_BYTES = 256 * KIB


def _inflate_gzip(data: memoryview, cap: int) -> memoryview:
    """By zlib, as clients do: cramjam takes streams with references to before their beginning, which zlib refuses."""
    output = bytearray()
    member = zlib.decompressobj(_GZIP_FORMAT)
    position = 0
    piece: memoryview | bytes = b""
    while True:
        if not piece:
            piece = data[position : position + _GZIP_READ_BYTES]
            position += len(piece)
        more = member.decompress(piece, _GZIP_WRITE_BYTES)
        if not more and not piece:
            raise CorruptBatch("gzip data is cut short")
        output += more
        if len(output) > cap:
            raise CorruptBatch(f"gzip data of more than {cap} bytes")
        piece = member.unconsumed_tail
        if member.eof:  # members may follow each other
            position -= len(member.unused_data)
            if position == len(data):
                return memoryview(output)
            member, piece = zlib.decompressobj(_GZIP_FORMAT), b""


# ---- snappy: raw blocks, alone or in xerial's framing (snappy-java)

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * KIB
_SNAPPY_MAX_RATIO = 32  # the densest element turns 3 bytes into 64; this leaves room for rounding


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _inflate_snappy(data: memoryview, cap: int) -> memoryview:
    blocks = _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > cap:
        raise CorruptBatch(f"snappy data of {total} bytes where at most {cap} are allowed")
    output = memoryview(bytearray(total))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        snappy.decompress_raw_into(block, output[position : position + size])
        position += size
    return output


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position = 0
    while position < len(data):
        if data[position : position + 8] == _XERIAL_MAGIC:  # streams may follow each other
            if data[position : position + len(_XERIAL_HEADER)] != _XERIAL_HEADER:
                # Readers that know the one version there is take anything else for a block without framing.
                raise CorruptBatch("a snappy header that is cut short, or of a version that nobody writes")
            position += len(_XERIAL_HEADER)
            continue
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if length == 0 or length > len(data) - position:
            raise CorruptBatch(f"a snappy block of {length} bytes with {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The declared length, refused when no snappy data of this length could have it."""
    if not block:
        raise CorruptBatch("empty snappy block")
    declared = int(snappy.decompress_raw_len(block))
    if declared > len(block) * _SNAPPY_MAX_RATIO:
        raise CorruptBatch(f"{len(block)} bytes of snappy data claim to hold {declared}")
    return declared


# ---- lz4 frames (lz4_Frame_format.md)

_LZ4_MAGIC = 0x184D2204
_LZ4_MAX_RATIO = 256  # a literal-free run grows by 255 per byte
_LZ4_BLOCK_BYTES = {4: 64 * KIB, 5: 256 * KIB, 6: MIB, 7: 4 * MIB}
_LZ4_RAW_BLOCK = 0x8000_0000
_LZ4_HAS_SIZE = 0x08
# Version 1, independent blocks, no checksums (the batch has its own), 64 KiB blocks; 0x82 is the header's checksum.
_LZ4_HEADER = _LZ4_MAGIC.to_bytes(4, "little") + b"\x60\x40\x82"
_LZ4_END = bytes(4)


def _compress_lz4(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), 64 * KIB):
        plain = view[start : start + 64 * KIB]
        block = _lz4_block(plain, level)
        length = len(block)
        if length >= len(plain):
            block, length = plain, len(plain) | _LZ4_RAW_BLOCK
        parts += (length.to_bytes(4, "little"), bytes(block))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_block(plain: memoryview, level: int) -> Buffer:
    """9 is the quick mode, as in Kafka; the other levels are the library's own, of which it has twelve."""
    if level == _LZ4_QUICK:
        return bytes(lz4.compress_block(plain, store_size=False))
    # The library has levels for frames only: a frame of one block is made, and its block taken out.
    frame = memoryview(lz4.compress(plain, level=min(level, 12)))
    start = 7 + (8 if frame[4] & _LZ4_HAS_SIZE else 0)
    length = int.from_bytes(frame[start : start + 4], "little")
    return plain if length & _LZ4_RAW_BLOCK else frame[start + 4 : start + 4 + length]


def _inflate_lz4(data: memoryview, cap: int) -> memoryview:
    return _inflate_within(lz4.decompress_into, data, _lz4_extent(data), cap)


def _lz4_extent(data: memoryview) -> Extent:
    claimed: int | None = 0
    bound = 0
    position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if _is_skippable(magic):
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _LZ4_MAGIC:
            raise CorruptBatch("not an lz4 frame")
        flags, descriptor = data[position + 4], data[position + 5]
        block_bytes = _LZ4_BLOCK_BYTES.get(descriptor >> 4 & 7, 0)
        position += 6
        if flags & 0x08:
            size = struct.unpack_from("<Q", data, position)[0]
            claimed = None if claimed is None else claimed + size
            position += 8
        else:
            claimed = None
        position += 5 if flags & 0x01 else 1  # dictionary id, header checksum
        while length := struct.unpack_from("<I", data, position)[0]:
            stored = length & ~_LZ4_RAW_BLOCK
            bound += stored if length & _LZ4_RAW_BLOCK else min(block_bytes, stored * _LZ4_MAX_RATIO)
            position += 4 + stored + (4 if flags & 0x10 else 0)
        position += 8 if flags & 0x04 else 4
    return Extent(claimed, bound)


# ---- zstd frames (RFC 8878)

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 * KIB
_ZSTD_WINDOW_ALLOWANCE = 8 * MIB  # what the RFC wants every decoder to accept, also under a smaller cap


def _inflate_zstd(data: memoryview, cap: int) -> memoryview:
    return _inflate_within(
        zstd.decompress_into, data, _zstd_extent(data, max(cap, _ZSTD_WINDOW_ALLOWANCE)), cap
    )


def _zstd_extent(data: memoryview, max_window: int) -> Extent:
    claimed: int | None = 0
    bound = 0
    position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if _is_skippable(magic):
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("not a zstd frame")
        descriptor = data[position + 4]
        window, size, position = _zstd_frame_header(data, position + 5, descriptor)
        if window > max_window:
            raise CorruptBatch(f"a zstd window of {window} bytes where at most {max_window} are allowed")
        claimed = None if claimed is None or size is None else claimed + size
        last = False
        while not last:
            block = int.from_bytes(data[position : position + 3], "little")
            if position + 3 > len(data):
                raise CorruptBatch("zstd data is cut short")
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            if length > _ZSTD_BLOCK_BYTES:
                raise CorruptBatch(f"a zstd block of {length} bytes")
            bound += _ZSTD_BLOCK_BYTES if kind == 2 else length
            position += 3 + (1 if kind == 1 else length)  # kind 1 is one byte, repeated
        position += 4 if descriptor & 0x04 else 0
    return Extent(claimed, bound)


def _zstd_frame_header(data: memoryview, position: int, descriptor: int) -> tuple[int, int | None, int]:
    """(window size, content size or None, position of the first block)."""
    single_segment = bool(descriptor & 0x20)
    window = 0
    if not single_segment:
        exponent, mantissa = data[position] >> 3, data[position] & 7
        window = (1 << 10 + exponent) + ((1 << 10 + exponent) >> 3) * mantissa
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]  # dictionary id
    size_bytes = (int(single_segment), 2, 4, 8)[descriptor >> 6]
    if position + size_bytes > len(data):
        raise CorruptBatch("zstd data is cut short")
    size = int.from_bytes(data[position : position + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    if single_segment:
        window = size
    return window, size if size_bytes else None, position + size_bytes


def _is_skippable(magic: int) -> bool:
    """lz4 and zstd share sixteen magic numbers for frames that hold no data."""
    return magic & ~0xF == 0x184D2A50


_INFLATERS: dict[int, Callable[[memoryview, int], memoryview]] = {
    Codec.GZIP: _inflate_gzip,
    Codec.SNAPPY: _inflate_snappy,
    Codec.LZ4: _inflate_lz4,
    Codec.ZSTD: _inflate_zstd,
}
