"""A23: what a token looks like, what is kept of it, and when it ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.audit import AuditTrail
from headrace.security.image import SecurityImage
from headrace.security.logins import IDLE_MS, LoginFailed, Logins
from headrace.security.records import TokenRecord, UserRecord, encode, user_key
from headrace.security.tokens import digest_of, make_token


class World:
    """A runtime that has a clock."""

    def __init__(self) -> None:
        self.clock = self
        self.at_ms = 1_000

    def now_ms(self) -> int:
        return self.at_ms

    def wall_ms(self) -> int:
        return self.at_ms

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


@given(st.binary(min_size=32, max_size=32))
def test_a23_a_token_has_its_form_and_a_checksum(random: bytes) -> None:
    token = make_token(random)
    assert re.fullmatch(r"hr_[A-Za-z0-9_-]{49}", token)
    digest = digest_of(token)
    assert digest is not None and token not in digest and len(digest) == 64
    for place in range(3, len(token)):
        other = "A" if token[place] != "A" else "B"
        changed = digest_of(token[:place] + other + token[place + 1 :])
        assert changed is None


def test_a23_a_token_is_good_until_it_ends_and_while_its_owner_is_somebody() -> None:
    world, image = World(), SecurityImage()
    logins = Logins(world, image, lambda: b"", AuditTrail(world, 1))  # type: ignore[arg-type]
    token = make_token(b"x" * 32)
    key = f"tokens/{digest_of(token)}"
    with pytest.raises(LoginFailed):
        logins.by_token(token, "h")
    image.apply(key, encode(TokenRecord("alice", "", 0, 2_000)))
    with pytest.raises(LoginFailed):
        logins.by_token(token, "h")  # there is no alice
    image.apply(user_key("alice"), encode(UserRecord(0)))
    assert str(logins.by_token(token, "h").principal) == "User:alice"
    world.at_ms = 2_000
    with pytest.raises(LoginFailed):
        logins.by_token(token, "h")
    world.at_ms = 1_999
    image.apply(user_key("alice"), encode(UserRecord(0, False)))
    with pytest.raises(LoginFailed):
        logins.by_token(token, "h")
    image.apply(user_key("alice"), encode(UserRecord(0)))
    image.apply(key, None)
    with pytest.raises(LoginFailed):
        logins.by_token(token, "h")
    for _ in range(10):
        with pytest.raises(LoginFailed):
            logins.by_token("hr_guess", "10.0.0.9")
    assert logins.is_shut_out("10.0.0.9")


def test_w18_a_session_that_nobody_uses_ends() -> None:
    world, image = World(), SecurityImage()
    logins = Logins(world, image, lambda: b"", AuditTrail(world, 1))  # type: ignore[arg-type]
    token = make_token(b"y" * 32)
    image.apply(f"tokens/{digest_of(token)}", encode(TokenRecord("alice", "console", 0, 10 * IDLE_MS)))
    image.apply(user_key("alice"), encode(UserRecord(0)))
    for turn in range(4):  # used now and then it lasts
        world.at_ms = turn * (IDLE_MS - 1)
        assert str(logins.by_session(token).principal) == "User:alice"
    world.at_ms += IDLE_MS + 1
    with pytest.raises(LoginFailed):
        logins.by_session(token)
    with pytest.raises(LoginFailed):  # asking is not using: it does not come back
        logins.by_session(token)
