"""Machine: who guesses passwords is slowed down and then not heard for a while (A61, X7).

By address (of IPv6 the /64): ten failures a minute, then closed when it connects, for a minute, twice as long each time, up to a quarter of
an hour. By user only a delay that grows: a lock would be a gift to whoever wants to keep the user out. This machine's own address is
never shut out, so an administrator on the host always gets in. Tables are bounded. Success clears what was tried with that name, and nothing
else: who has a login of their own must not be able to forget with it what they have tried on others.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

MOST = 10_000
FAILURES = 10
WINDOW_MS = 60_000
SHUT_MS = 60_000
LONGEST_SHUT_MS = 15 * 60_000
BASE_DELAY_MS = 100
LONGEST_DELAY_MS = 3_000
_ALWAYS_HEARD = ("127.0.0.1", "::1", "")


class _Record:
    __slots__ = ("shut_ms", "shut_until_ms", "since_ms", "tried")

    def __init__(self, now_ms: int) -> None:
        self.tried: dict[str, int] = {}
        """Name -> failures with it, since `since_ms`; a handful."""
        self.since_ms = now_ms
        self.shut_ms = SHUT_MS
        self.shut_until_ms = 0


class LoginLimits:
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Record] = OrderedDict()
        self._users: OrderedDict[str, int] = OrderedDict()
        self.failures = 0

    def is_shut_out(self, host: str, now_ms: int) -> bool:
        if not self._addresses:
            return False
        record = self._addresses.get(_network(host))
        return record is not None and now_ms < record.shut_until_ms

    def failed(self, host: str, user: str, now_ms: int) -> int:
        """How long the answer has to wait."""
        self.failures += 1
        earlier = self._users.pop(user, 0)
        self._users[user] = earlier + 1
        if len(self._users) > MOST:
            self._users.popitem(last=False)
        if host not in _ALWAYS_HEARD:
            self._count(_network(host), user, now_ms)
        return min(BASE_DELAY_MS << min(max(earlier - 2, 0), 10), LONGEST_DELAY_MS)

    def _count(self, network: str, user: str, now_ms: int) -> None:
        record = self._addresses.pop(network, None) or _Record(now_ms)
        self._addresses[network] = record
        if len(self._addresses) > MOST:
            self._addresses.popitem(last=False)
        if now_ms - record.since_ms > WINDOW_MS:
            record.tried, record.since_ms = {}, now_ms
            if now_ms - record.shut_until_ms > LONGEST_SHUT_MS:
                record.shut_ms = SHUT_MS
        record.tried[user] = record.tried.get(user, 0) + 1
        if sum(record.tried.values()) >= FAILURES:
            record.tried = {}
            record.shut_until_ms = now_ms + record.shut_ms
            record.shut_ms = min(2 * record.shut_ms, LONGEST_SHUT_MS)

    def succeeded(self, host: str, user: str) -> None:
        if self._users:
            self._users.pop(user, None)
        record = self._addresses.get(_network(host)) if self._addresses else None
        if record is not None:
            record.tried.pop(user, None)
            if not record.tried and not record.shut_until_ms:
                del self._addresses[_network(host)]


def _network(host: str) -> str:
    if ":" not in host:
        return host
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(IPv6Address(int(address) >> 64 << 64)) if isinstance(address, IPv6Address) else host
