from __future__ import annotations

import pytest

from headrace.log.checkpoints import (
    CLEAN_MARKER_FILE,
    CleanMarker,
    DamagedFile,
    LogState,
    PartitionIdentity,
    decode_identity,
    decode_state,
    encode_identity,
    encode_state,
    seal,
    take_clean_marker,
    unseal,
    write_clean_marker,
)
from headrace.log.epochs import LeaderEpochs
from headrace.log.memory_fs import MemoryFileSystem

STATE = LogState(5, 2, 4, 1, 1, 0, 1_700_000_000_000, 9)


def _epochs() -> LeaderEpochs:
    epochs = LeaderEpochs()
    epochs.assign(1, 0)
    epochs.assign(4, 17)
    return epochs


def test_round_trips() -> None:
    assert decode_state(encode_state(STATE)) == STATE
    identity = PartitionIdentity(bytes(range(16)), 7)
    assert decode_identity(encode_identity(identity)) == identity
    assert LeaderEpochs.decode(_epochs().encode()).entries == [(1, 0), (4, 17)]


@pytest.mark.parametrize("data", [encode_state(STATE), _epochs().encode()], ids=["state", "epochs"])
def test_s13_every_flipped_bit_and_every_cut_is_noticed(data: bytes) -> None:
    decode = decode_state if b"log-state" in data else LeaderEpochs.decode
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(DamagedFile):
                decode(bytes(damaged))
        with pytest.raises(DamagedFile):
            decode(data[:position])
    with pytest.raises(DamagedFile):
        decode(data + b"x")


def test_s13_kind_and_version_are_part_of_the_seal() -> None:
    data = seal("thing", 2, b"payload")
    assert unseal("thing", 2, data) == b"payload"
    for kind, version in (("thing", 1), ("other", 2)):
        with pytest.raises(DamagedFile):
            unseal(kind, version, data)


@pytest.mark.parametrize(
    "payload",
    [b"{}", b"[]", b"not json", b"\xff", b'{"recovery_point": "5"}', b'{"topic_id": 1, "created_ms": 2}'],
)
def test_s13_a_sealed_file_with_the_wrong_content_is_refused(payload: bytes) -> None:
    with pytest.raises(DamagedFile):
        decode_state(seal("log-state", 1, payload))
    with pytest.raises(DamagedFile):
        decode_identity(seal("partition", 1, payload))
    with pytest.raises(DamagedFile):
        LeaderEpochs.decode(seal("epochs", 1, b"[[3, 5], [2, 9]]"))


def test_s18_r33_the_clean_marker_counts_once() -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    assert take_clean_marker(fs, "/data") is None
    write_clean_marker(fs, "/data", broker_epoch=42)
    assert take_clean_marker(fs, "/data") == CleanMarker(42)
    assert take_clean_marker(fs, "/data") is None, "a marker from an older life"


def test_s18_an_unreadable_marker_is_none_and_goes() -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    write_clean_marker(fs, "/data", 42)
    data = bytearray(fs.read_file(f"/data/{CLEAN_MARKER_FILE}"))
    data[-3] ^= 1
    fs.write_file(f"/data/{CLEAN_MARKER_FILE}", bytes(data))
    assert take_clean_marker(fs, "/data") is None
    assert not fs.exists(f"/data/{CLEAN_MARKER_FILE}")
