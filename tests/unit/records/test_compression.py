"""X11: the cap holds for every codec, however the data lies about itself."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import tracemalloc

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard

from headrace.core.limits import ALWAYS_DECOMPRESSED_BYTES, KIB, MAX_DECOMPRESSED_BYTES, MIB
from headrace.records.batch import CorruptBatch
from headrace.records.compression import Codec, compress, decompression_cap, inflate

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 3000


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 32 * KIB, 64 * KIB + 1, len(TEXT)])
def test_round_trip(codec: Codec, size: int) -> None:
    data = TEXT[:size]
    packed = compress(codec, data)
    assert inflate(codec, packed, max(size, 1)) == data
    assert inflate(codec, memoryview(bytearray(packed)), size) == data
    assert bytes(inflate(codec, packed, size + 10)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_one_byte_over_the_cap_is_refused(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(CorruptBatch):
        inflate(codec, packed, len(TEXT) - 1)


def test_incompressible_data_survives() -> None:
    noise = bytes((i * i * 31 + i * 7919 + (i >> 3) * 104729) & 0xFF for i in range(100_000))
    for codec in Codec:
        assert inflate(codec, compress(codec, noise), len(noise)) == noise


def test_there_is_no_codec_5() -> None:
    with pytest.raises(CorruptBatch):
        inflate(5, b"abc", 100)
    with pytest.raises(ValueError):
        compress(5, b"abc")


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones() -> None:
    assert compress(Codec.LZ4, TEXT)[4] & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_corrupt_and_nothing_else(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in {0, 1, 4, 5, 7, 11, 15, 17, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(CorruptBatch):
            inflate(codec, packed[:cut] if cut else b"", len(TEXT))


# ---- what other people's encoders write


def xerial(blocks: list[bytes]) -> bytes:
    framed = [b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)]
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        framed += [struct.pack(">i", len(packed)), packed]
    return b"".join(framed)


FOREIGN = {
    "gzip": (Codec.GZIP, gzip.compress(TEXT)),
    "gzip members": (Codec.GZIP, gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:])),
    "snappy raw": (Codec.SNAPPY, snappy.compress(TEXT)),
    "snappy xerial": (Codec.SNAPPY, xerial([TEXT[:9], TEXT[9:70_000], TEXT[70_000:]])),
    "snappy xerial streams": (Codec.SNAPPY, xerial([TEXT[:9]]) + xerial([TEXT[9:]])),
    "lz4": (Codec.LZ4, lz4.frame.compress(TEXT)),
    "lz4 sized, linked, summed": (
        Codec.LZ4,
        lz4.frame.compress(
            TEXT, store_size=True, block_linked=True, content_checksum=True, block_checksum=True, block_size=6
        ),
    ),
    "lz4 unsized": (Codec.LZ4, lz4.frame.compress(TEXT, store_size=False, block_size=7)),
    "lz4 frames": (
        Codec.LZ4,
        lz4.frame.compress(TEXT[:77]) + lz4.frame.compress(TEXT[77:], store_size=False),
    ),
    "lz4 skippable": (Codec.LZ4, struct.pack("<II", 0x184D2A50, 3) + b"abc" + lz4.frame.compress(TEXT)),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor(level=19).compress(TEXT)),
    "zstd unsized": (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    "zstd summed": (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd frames": (
        Codec.ZSTD,
        zstandard.compress(TEXT[:300])
        + zstandard.ZstdCompressor(write_content_size=False).compress(TEXT[300:]),
    ),
    "zstd skippable": (Codec.ZSTD, struct.pack("<II", 0x184D2A5F, 3) + b"abc" + zstandard.compress(TEXT)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_encoders(name: str) -> None:
    codec, packed = FOREIGN[name]
    assert inflate(codec, packed, len(TEXT)) == TEXT
    assert inflate(codec, packed, 10 * len(TEXT)) == TEXT
    with pytest.raises(CorruptBatch):
        inflate(codec, packed, len(TEXT) - 1)


def test_foreign_decoders_read_ours() -> None:
    assert lz4.frame.decompress(compress(Codec.LZ4, TEXT)) == TEXT
    assert zstandard.decompress(compress(Codec.ZSTD, TEXT)) == TEXT
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


# ---- bombs: 256 MiB of zeros, 1 MiB allowed

CAP = MIB
_BOMB_BYTES = 256 * MIB


def lying_zstd(content_size: int) -> bytes:
    """A single-segment frame that states `content_size` and then repeats a zero as often as blocks allow."""
    rle = (128 * KIB << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (128 * KIB << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    header = (0xFD2FB528).to_bytes(4, "little") + bytes([0xE0]) + content_size.to_bytes(8, "little")
    return header + rle * (_BOMB_BYTES // (128 * KIB) - 1) + last


@pytest.fixture(scope="module")
def bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(_BOMB_BYTES)
    unit = bytes(8 * MIB)
    small_snappy = bytes(cramjam.snappy.compress_raw(unit))
    found = {
        "gzip": (Codec.GZIP, bytes(cramjam.gzip.compress(zeros, level=1))),
        "gzip members": (Codec.GZIP, bytes(cramjam.gzip.compress(unit)) * 32),
        "snappy raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy xerial": (
            Codec.SNAPPY,
            b"\x82SNAPPY\x00"
            + struct.pack(">ii", 1, 1)
            + (struct.pack(">i", len(small_snappy)) + small_snappy) * 32,
        ),
        "lz4": (Codec.LZ4, bytes(cramjam.lz4.compress(zeros, level=1))),
        "lz4 sized": (Codec.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "lz4 frames": (Codec.LZ4, lz4.frame.compress(unit, store_size=False) * 32),
        "zstd sized": (Codec.ZSTD, zstandard.compress(zeros)),
        "zstd unsized": (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(zeros)),
        "zstd frames": (Codec.ZSTD, zstandard.compress(unit) * 32),
        "zstd states little": (Codec.ZSTD, lying_zstd(1000)),
        "zstd states much": (Codec.ZSTD, lying_zstd(1 << 40)),
    }
    return found


BOMB_NAMES = [
    "gzip", "gzip members", "snappy raw", "snappy xerial", "lz4", "lz4 sized", "lz4 frames",
    "zstd sized", "zstd unsized", "zstd frames", "zstd states little", "zstd states much",
]  # fmt: skip


@pytest.mark.parametrize("name", BOMB_NAMES)
def test_x11_bombs_stop_at_the_cap(name: str, bombs: dict[str, tuple[Codec, bytes]]) -> None:
    codec, packed = bombs[name]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            inflate(codec, packed, CAP)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Two attempts' buffers may live at once; the walk itself holds next to nothing.
    assert peak < 2 * CAP + 256 * KIB


def test_x11_resident_memory_stays_bounded(bombs: dict[str, tuple[Codec, bytes]], tmp_path: object) -> None:
    """tracemalloc does not see native allocations, so a process of its own measures its peak resident set."""
    folder = str(tmp_path)
    for name, (codec, packed) in bombs.items():
        with open(f"{folder}/{name}.{int(codec)}", "wb") as file:
            file.write(packed)
    script = (
        "import os, resource, sys\n"
        "from headrace.records.compression import CorruptBatch, inflate\n"
        "before = None\n"
        "for name in sorted(os.listdir(sys.argv[1])):\n"
        "    with open(os.path.join(sys.argv[1], name), 'rb') as file: data = file.read()\n"
        "    if before is None: before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    try: inflate(int(name.rsplit('.')[-1]), data, 1 << 20)\n"
        "    except CorruptBatch: pass\n"
        "    else: sys.exit('not refused: ' + name)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown_kib = int(
        subprocess.run([sys.executable, "-c", script, folder], check=True, capture_output=True).stdout
    )
    # The largest bomb is 12 MiB on its own (snappy packs badly); nothing near 256 MiB may ever be resident.
    assert grown_kib < 40 * KIB


def test_x11_a_huge_zstd_window_is_refused_before_the_decoder_allocates_it() -> None:
    window_log_31 = bytes([(31 - 10) << 3])
    frame = (0xFD2FB528).to_bytes(4, "little") + b"\x00" + window_log_31 + b"\x01\x00\x00"
    with pytest.raises(CorruptBatch, match="window"):
        inflate(Codec.ZSTD, frame, 100 * MIB)


def test_x11_a_snappy_length_that_can_not_be_true_is_refused_without_a_buffer() -> None:
    with pytest.raises(CorruptBatch, match="claim"):
        inflate(Codec.SNAPPY, b"\x80\x80\x80\x20" + b"\x00a", 128 * MIB)


def test_the_cap_is_a_ratio_and_an_absolute_limit() -> None:
    assert decompression_cap(10) == decompression_cap(8 * KIB) == ALWAYS_DECOMPRESSED_BYTES
    assert decompression_cap(100 * KIB) == 100 * KIB * 1000
    assert decompression_cap(100 * MIB) == MAX_DECOMPRESSED_BYTES
