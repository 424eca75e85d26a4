"""A16, A18, X5, P7 (SCRAM): the exchange by the RFCs' own vectors, and whatever else is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from headrace.security.records import ScramRecord
from headrace.security.scram import (
    SHA_256,
    SHA_512,
    ScramFailed,
    ScramServer,
    ScramUser,
    made_up,
    record_of,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def record(mechanism: str = SHA_256, password: str = "pencil") -> ScramRecord:
    return record_of(mechanism, salted_password(mechanism, password, SALT, 4096), SALT, 4096)


def server(mechanism: str = SHA_256, *, real: bool = True) -> ScramServer:
    held = record(mechanism)
    return ScramServer(mechanism, lambda name, is_token: ScramUser(name, held, real), b"\x01" * 24)


def proof_for(mechanism: str, password: str, signed: str) -> str:
    name = "sha256" if mechanism == SHA_256 else "sha512"
    salted = salted_password(mechanism, password, SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", name)
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed.encode(), name)
    return base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()


def final_for(
    first_bare: str, answer: str, password: str = "pencil", mechanism: str = SHA_256, gs2: str = "n,,"
) -> bytes:
    nonce = answer.split(",")[0][2:]
    without = f"c={base64.b64encode(gs2.encode()).decode()},r={nonce}"
    return f"{without},p={proof_for(mechanism, password, f'{first_bare},{answer},{without}')}".encode()


def test_the_vector_of_rfc_7677() -> None:
    """Its nonce is text, so it is put in the place of ours."""
    machine = server()
    machine._nonce = SERVER_NONCE
    answer = machine.first(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert answer.decode() == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    user, verifier = machine.final(
        f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert user.name == "user"
    assert verifier == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("gs2", ["n,,", "y,,", "n,a=us=2Cer,"])
def test_who_knows_the_password_is_let_in(mechanism: str, gs2: str) -> None:
    machine = server(mechanism)
    bare = "n=us=2Cer,r=abc"
    answer = machine.first((gs2 + bare).encode()).decode()
    assert machine.final(final_for(bare, answer, mechanism=mechanism, gs2=gs2))[0].name == "us,er"


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=user,r=abc",  # channel binding is not offered
        b"n,a=other,n=user,r=abc",  # wants to act as somebody else
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=abc,m=mandatory",
        b"x,,n=user,r=abc",
        b"",
        b"\xff\xfe",
        b"n,,n=" + b"a" * 5000 + b",r=abc",
    ],
)
def test_p7_a_first_message_that_is_none_is_refused(first: bytes) -> None:
    with pytest.raises(ScramFailed):
        server().first(first)


def test_p7_every_other_second_message_is_refused() -> None:
    bare = "n=user,r=abc"

    def answered() -> tuple[ScramServer, str]:
        machine = server()
        return machine, machine.first(f"n,,{bare}".encode()).decode()

    machine, answer = answered()
    good = final_for(bare, answer)
    assert machine.final(good)[0].name == "user"
    wrong = [
        final_for(bare, answer, password="pencils"),
        final_for(bare, answer, gs2="y,,"),  # the flag that was sent is not the one that is signed
        good.replace(b"r=abc", b"r=abd"),
        good[:-4] + b"AAA=",
        good.rpartition(b",p=")[0],
        good.rpartition(b",p=")[0] + b",p=!!!!",
        good.rpartition(b",p=")[0] + b",p=",
        b"",
        b"\xff",
    ]
    for message in wrong:
        machine, again = answered()
        assert again == answer
        with pytest.raises(ScramFailed):
            machine.final(message)
    other = ScramServer(SHA_256, lambda name, is_token: ScramUser(name, record(), True), b"\x02" * 24)
    other.first(f"n,,{bare}".encode())
    with pytest.raises(ScramFailed, match="nonce"):
        other.final(good)  # played back
    with pytest.raises(ScramFailed, match="first"):
        server().final(good)


def test_p2_the_nonce_of_older_librdkafkas_is_taken() -> None:
    """kcat of every distribution: its own nonce, and then the whole of ours."""
    machine = server()
    bare = "n=user,r=abc"
    answer = machine.first(f"n,,{bare}".encode()).decode()
    nonce = "abc" + answer.split(",")[0][2:]
    without = f"c=biws,r={nonce}"
    proof = proof_for(SHA_256, "pencil", f"{bare},{answer},{without}")
    assert machine.final(f"{without},p={proof}".encode())[0].name == "user"


def test_a16_nobody_looks_like_somebody_until_the_end() -> None:
    secret = b"s" * 32
    assert made_up(SHA_256, "nobody", secret) == made_up(SHA_256, "nobody", secret)
    assert made_up(SHA_256, "nobody", secret).salt != made_up(SHA_256, "nobody2", secret).salt
    machine = server(real=False)  # disabled: even the right password is wrong
    answer = machine.first(b"n,,n=user,r=abc").decode()
    with pytest.raises(ScramFailed):
        machine.final(final_for("n=user,r=abc", answer))
