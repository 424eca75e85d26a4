"""The proof between brokers and the keys behind it, as machines (A27, A49; F8)."""

from __future__ import annotations

import hmac

import pytest

from headrace.core.cluster_key import PEER_CONNECTIONS, PEER_REQUESTS, RECEIPTS, derive
from headrace.core.peer_proof import Answerer, BadProof, Hello, answer_challenge

KEY, OTHER = b"k" * 32, b"o" * 32
HELLO = Hello(1, 10, 2, 20, b"n" * 32)
THERE = b"m" * 32


def test_both_sides_prove_themselves() -> None:
    answerer = Answerer(KEY, Hello.decode(HELLO.encode()), THERE)
    answerer.check(answer_challenge(KEY, HELLO, answerer.challenge()))


def test_neither_does_without_the_key() -> None:
    answerer = Answerer(KEY, HELLO, THERE)
    with pytest.raises(BadProof):
        answer_challenge(OTHER, HELLO, answerer.challenge())
    with pytest.raises(BadProof):
        answerer.check(hmac.digest(OTHER, b"asker" + HELLO.encode() + THERE, "sha256"))


@pytest.mark.parametrize("place", range(5))
def test_f8_a_proof_is_good_for_one_pair_of_lives_and_nonces(place: int) -> None:
    """Each field of the hello is in it: ids, epochs, the nonce; and the answerer's nonce."""
    proof = answer_challenge(KEY, HELLO, Answerer(KEY, HELLO, THERE).challenge())
    changed = [value if isinstance(value, bytes) else value + 1 for value in HELLO]
    if place == 4:
        changed = [*HELLO[:4], b"x" * 32]
    other = Hello(*(changed[at] if at == place else HELLO[at] for at in range(5)))  # type: ignore[arg-type]
    with pytest.raises(BadProof):
        Answerer(KEY, other, THERE).check(proof)
    with pytest.raises(BadProof):
        Answerer(KEY, HELLO, b"y" * 32).check(proof)


def test_a_challenge_can_not_be_reflected() -> None:
    """What the answerer says is not what an asker has to say."""
    answerer = Answerer(KEY, HELLO, THERE)
    with pytest.raises(BadProof):
        answerer.check(answerer.challenge()[32:])


@pytest.mark.parametrize("token", [b"", b"\x01", HELLO.encode() + b"x", b"\x02" + HELLO.encode()[1:]])
def test_what_is_no_hello(token: bytes) -> None:
    with pytest.raises(BadProof):
        Hello.decode(token)


@pytest.mark.parametrize("challenge", [b"", b"m" * 63, b"m" * 65])
def test_what_is_no_challenge(challenge: bytes) -> None:
    with pytest.raises(BadProof):
        answer_challenge(KEY, HELLO, challenge)


def test_a27_each_use_has_its_own_key() -> None:
    keys = {derive(KEY, use) for use in (PEER_CONNECTIONS, PEER_REQUESTS, RECEIPTS)}
    assert len(keys) == 3 and KEY not in keys
    assert derive(OTHER, RECEIPTS) not in keys
    long = derive(KEY, RECEIPTS, 80)
    assert len(long) == 80 and long[:32] == derive(KEY, RECEIPTS)


def test_the_derivation_is_rfc_5869() -> None:
    """Extract with a salt of zeros, then expand, written out."""
    extracted = hmac.new(bytes(32), KEY, "sha256").digest()
    first = hmac.new(extracted, b"headrace receipts\x01", "sha256").digest()
    second = hmac.new(extracted, first + b"headrace receipts\x02", "sha256").digest()
    assert derive(KEY, RECEIPTS, 64) == first + second
