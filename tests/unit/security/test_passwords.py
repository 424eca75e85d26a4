"""A17, A19: passwords in the clear are computed off the loop, known for a minute, forgotten at once, and bounded in number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.security.image import SecurityImage
from headrace.security.passwords import KNOWN_MS, MOST_WAITING, Busy, Passwords
from headrace.security.records import ScramRecord, UserRecord, encode, scram_key, user_key
from headrace.security.scram import SHA_256, record_of, salted_password


class World:
    """A runtime whose pool does one thing after the other, when it is let."""

    def __init__(self) -> None:
        self.clock = self
        self.at_ms = 0
        self.computed = 0
        self.open = asyncio.Event()

    def now_ms(self) -> int:
        return self.at_ms

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        await self.open.wait()
        self.computed += 1
        return work()


def record(password: str) -> ScramRecord:
    salt = b"salt of it"
    return record_of(SHA_256, salted_password(SHA_256, password, salt, 4096), salt, 4096)


def test_a19_a_password_is_computed_once_a_minute_and_again_when_the_user_changes() -> None:
    async def scenario() -> None:
        world, image = World(), SecurityImage()
        world.open.set()
        image.apply(user_key("alice"), encode(UserRecord(0)))
        image.apply(scram_key("alice", SHA_256), encode(record("one")))
        passwords = Passwords(world, image, lambda: b"secret")  # type: ignore[arg-type]
        for _ in range(5):
            assert await passwords.check("alice", "one")
        assert world.computed == 1
        assert not await passwords.check("alice", "two") and world.computed == 2
        assert not await passwords.check("alice", "two") and world.computed == 3, (
            "what was wrong is not known"
        )
        world.at_ms = KNOWN_MS
        assert await passwords.check("alice", "one") and world.computed == 4
        image.apply(scram_key("alice", SHA_256), encode(record("two")))
        assert not await passwords.check("alice", "one") and await passwords.check("alice", "two")
        image.apply(user_key("alice"), encode(UserRecord(0, enabled=False)))
        assert not passwords.is_known("alice", "two") and not await passwords.check("alice", "two")

    asyncio.run(scenario())


def test_a17_a_hundred_wait_and_the_next_is_a_trouble_of_ours_not_a_wrong_password() -> None:
    async def scenario() -> None:
        world, image = World(), SecurityImage()
        passwords = Passwords(world, image, lambda: b"secret")  # type: ignore[arg-type]
        waiting = [
            asyncio.ensure_future(passwords.check("nobody", str(each))) for each in range(MOST_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await passwords.check("nobody", "one more")
        world.open.set()
        assert await asyncio.gather(*waiting) == [False] * MOST_WAITING
        assert not await passwords.check("nobody", "one more")

    asyncio.run(scenario())
