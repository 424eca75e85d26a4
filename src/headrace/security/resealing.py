"""Driver: sealing everything anew under the key that seals now (A31), while the cluster works.

A key is replaced in three steps: every broker's secrets.key gets the new one as its first line, everything is sealed anew, the old line goes.
Invariant: nothing is sealed anew before every live broker opens with the new key and seals with it: no broker is left with what it can't read, and
none goes on sealing with what is about to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from headrace.security.admin import Ops, SecurityAdmin
from headrace.security.key_ring import KeyRing
from headrace.security.records import DELEGATION, KEYS, DelegationRecord, KeyRecord, encode

AT_ONCE = 20
"""Records in one transaction of the coordinator."""


class Resealed(NamedTuple):
    done: int = 0
    lost: tuple[str, ...] = ()
    """No key of this broker opens these; they stay as they are."""

    def plus(self, other: Resealed) -> Resealed:
        return Resealed(self.done + other.done, self.lost + other.lost)


class _Held(NamedTuple):
    name: str
    """Its key below `security/`."""
    about: str
    record: KeyRecord | DelegationRecord

    @property
    def words(self) -> str:
        return f"{'access key' if self.name.startswith(KEYS) else 'delegation token'} {self.about}"


class Resealing:
    def __init__(
        self, admin: SecurityAdmin, ring: KeyRing, others: Sequence[Callable[[], Awaitable[Resealed]]]
    ) -> None:
        """`others`: who else keeps something sealed."""
        self._admin = admin
        self._ring = ring
        self._others = others

    async def everything(self) -> Resealed:
        found = await self._credentials()
        for reseal in self._others:
            found = found.plus(await reseal())
        return found

    async def _credentials(self) -> Resealed:
        """Access keys and delegation tokens; a few at a time, so that the loop is never held for long."""
        image = self._admin.image
        names = [*(KEYS + each for each in image.keys), *(DELEGATION + each for each in image.delegations)]
        found = Resealed()
        for first in range(0, len(names), AT_ONCE):
            held = [one for name in names[first : first + AT_ONCE] if (one := self._older(name)) is not None]
            lost = tuple(one.words for one in held if self._ring.open(one.record.sealed, one.about) is None)
            if len(held) > len(lost):
                await self._admin.commit(lambda held=held: self._anew(held), "secrets are sealed anew")  # type: ignore[misc]
            found = found.plus(Resealed(len(held) - len(lost), lost))
            await asyncio.sleep(0)
        return found

    def _older(self, name: str) -> _Held | None:
        """As it is now; None when it is gone, or sealed with the key that seals now."""
        space, _, about = name.partition("/")
        image = self._admin.image
        record = image.keys.get(about) if f"{space}/" == KEYS else image.delegations.get(about)
        if record is None or self._ring.is_newest(record.sealed, about):
            return None
        return _Held(name, about, record)

    def _anew(self, held: Sequence[_Held]) -> Ops:
        made: list[tuple[str, bytes | None]] = []
        for one in held:
            now = self._older(one.name)
            plain = None if now is None else self._ring.open(now.record.sealed, now.about)
            if now is not None and plain is not None:
                sealed = self._ring.seal(now.about, plain.decode())
                made.append((now.name, encode(msgspec.structs.replace(now.record, sealed=sealed))))
        return made
