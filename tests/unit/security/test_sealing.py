"""A31: what is sealed opens under its own name and with a broker's key, and not otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.image import SecurityImage
from headrace.security.key_ring import KeyRing
from headrace.security.records import KeyRecord, UserRecord, encode, user_key
from headrace.security.sealing import NONCE_BYTES, Sealer, read_sealer

OLD, NEW = b"o" * 32, b"n" * 32
NONCE = bytes(range(NONCE_BYTES))


@given(st.binary(max_size=100), st.integers(0, 10_000))
def test_a31_one_changed_bit_or_another_name_or_key_opens_nothing(secret: bytes, place: int) -> None:
    sealed = Sealer([OLD]).seal(secret, "A", NONCE)
    assert Sealer([OLD]).open(sealed, "A") == secret
    assert Sealer([NEW, OLD]).open(sealed, "A") == secret, "both keys open while one replaces the other"
    assert Sealer([OLD]).open(sealed, "B") is None
    assert Sealer([NEW]).open(sealed, "A") is None
    at = place % (len(sealed) * 8)
    changed = bytearray(sealed)
    changed[at // 8] ^= 1 << at % 8
    assert Sealer([OLD]).open(bytes(changed), "A") is None
    assert Sealer([OLD]).open(sealed[: at // 8], "A") is None


@pytest.mark.parametrize("text", ["", "xyz", "00" * 31, "00" * 32 + "\n" + "00"])
def test_a31_a_file_that_is_no_key_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(HeadraceError) as refused:
        read_sealer(str(path))
    assert refused.value.kind is ErrorKind.INVALID_CONFIG
    assert not text.strip() or text.strip() not in str(refused.value)


def test_a29_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secrets.key"
    path.write_text("00" * 32)
    path.chmod(0o644)
    with pytest.raises(HeadraceError, match="can be read by others"):
        read_sealer(str(path))


def test_a31_a_key_is_known_while_the_coordinator_says_the_same() -> None:
    image, sealer = SecurityImage(), Sealer([OLD])
    ring = KeyRing(image, lambda count: bytes(count), sealer)
    image.apply(user_key("alice"), encode(UserRecord(0)))
    image.apply("keys/A", encode(KeyRecord("alice", ring.seal("A", "one"), 0)))
    assert ring.secret_of("A") == "one"
    image.apply("keys/A", encode(KeyRecord("alice", ring.seal("A", "two"), 0)))
    assert ring.secret_of("A") == "two"
    image.apply("keys/B", encode(KeyRecord("alice", ring.seal("A", "two"), 0)))
    assert ring.secret_of("B") is None, "a sealed secret can't be moved to another key"
    image.apply("keys/A", b"{}")
    assert ring.secret_of("A") is None and "keys/A" in image.unreadable
