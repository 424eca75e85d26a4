"""Machine: the rights that there are, and what they say about one question (A36, A37, A41).

Rights are kept by principal and by what they name, so a question costs a handful of dictionary lookups however many rights there
are: the name itself, `*`, and the name's beginnings of those lengths that prefixed rights have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from headrace.core.ids import is_internal
from headrace.core.principals import Principal
from headrace.security.records import ALL_OPERATIONS, ANY_NAME, Acl, PatternType, Permission, TokenGrant
from headrace.security.rights import Operation, Resource

EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The cluster as Kafka's tools name it."""

_IMPLYING: dict[Operation, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)),
}
_Key = tuple[str, Resource, PatternType, str]


class MatchedRules(NamedTuple):
    allow: Acl | None
    deny: Acl | None


class AclBook:
    def __init__(self) -> None:
        self._by_digest: dict[str, Acl] = {}
        self._rules: dict[_Key, list[Acl]] = {}
        self._policies: dict[str, Sequence[Acl]] = {}
        """By queue. They count like all others; who lists and deletes rights is not shown them."""
        self._lengths: dict[Resource, dict[int, int]] = {}
        """Of prefixed rights: how many there are of each length."""

    def __len__(self) -> int:
        return len(self._by_digest)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._by_digest.values())

    def __contains__(self, acl: Acl) -> bool:
        return acl.digest in self._by_digest

    def has(self, digest: str) -> bool:
        return digest in self._by_digest

    def add(self, acl: Acl) -> None:
        digest = acl.digest
        if digest in self._by_digest:
            return
        self._by_digest[digest] = acl
        self._put(acl)

    def set_policy(self, queue: str, acls: Sequence[Acl]) -> None:
        for acl in self._policies.pop(queue, ()):
            self._take(acl)
        if acls:
            self._policies[queue] = acls
        for acl in acls:
            self._put(acl)

    def _put(self, acl: Acl) -> None:
        self._rules.setdefault(_key(acl), []).append(acl)
        if acl.pattern is PatternType.PREFIXED:
            lengths = self._lengths.setdefault(acl.resource, {})
            lengths[len(acl.name)] = lengths.get(len(acl.name), 0) + 1

    def remove(self, digest: str) -> None:
        acl = self._by_digest.pop(digest, None)
        if acl is not None:
            self._take(acl)

    def _take(self, acl: Acl) -> None:
        rules = self._rules[_key(acl)]
        rules.remove(acl)
        if not rules:
            del self._rules[_key(acl)]
        if acl.pattern is PatternType.PREFIXED:
            lengths = self._lengths[acl.resource]
            lengths[len(acl.name)] -= 1
            if not lengths[len(acl.name)]:
                del lengths[len(acl.name)]

    def find(
        self, principal: Principal, host: str, operation: Operation, resource: Resource, name: str
    ) -> MatchedRules:
        """The first right that allows it and the first that denies it. A denial wins (A37)."""
        allow = None
        implying = _IMPLYING.get(operation, frozenset((operation,)))
        for acl in self._about(principal, resource, name):
            said = acl.operation
            if acl.permission is Permission.DENY:
                if said in (operation, ALL_OPERATIONS) and host_matches(acl.host, host):
                    return MatchedRules(None, acl)
            elif (
                allow is None
                and (said == ALL_OPERATIONS or said in implying)
                and host_matches(acl.host, host)
            ):
                allow = acl
        return MatchedRules(allow, None)

    def writes_somewhere(self, principal: Principal, host: str) -> Acl | None:
        """A right to write to some topic: it allows an idempotent producer (A37)."""
        for who in (str(principal), EVERYBODY):
            for (owner, resource, _, name), rules in self._rules.items():
                if owner != who or resource is not Resource.TOPIC:
                    continue
                for acl in rules:
                    if (
                        acl.permission is Permission.ALLOW
                        and acl.operation in (Operation.WRITE, ALL_OPERATIONS)
                        and host_matches(acl.host, host)
                        and self.find(principal, host, Operation.WRITE, resource, name).deny is None
                    ):
                        return acl
        return None

    def _about(self, principal: Principal, resource: Resource, name: str) -> Iterator[Acl]:
        rules = self._rules
        named = CLUSTER_NAME if resource is Resource.CLUSTER else name
        internal = resource is Resource.TOPIC and is_internal(name)
        lengths = self._lengths.get(resource, ())
        for who in (str(principal), EVERYBODY):
            yield from rules.get((who, resource, PatternType.LITERAL, named), ())
            if not internal:
                # A41: what is the broker's own is not meant by "everything".
                yield from rules.get((who, resource, PatternType.LITERAL, ANY_NAME), ())
            for length in lengths:
                beginning = named[:length]
                if length <= len(named) and not (internal and not is_internal(beginning)):
                    yield from rules.get((who, resource, PatternType.PREFIXED, beginning), ())


def book_of(grants: Iterable[TokenGrant]) -> AclBook:
    """What a token is for (A40), whoever shows it, from wherever."""
    book = AclBook()
    for grant in grants:
        book.add(
            Acl(
                grant.resource,
                grant.name,
                grant.pattern,
                EVERYBODY,
                ANY_NAME,
                grant.operation,
                Permission.ALLOW,
            )
        )
    return book


def _key(acl: Acl) -> _Key:
    return (acl.principal, acl.resource, acl.pattern, acl.name)


def host_matches(rule: str, host: str) -> bool:
    """`*`, an address, or a network as in 10.0.0.0/8 (which only our own tools write, A36)."""
    if rule in (ANY_NAME, host):
        return True
    if "/" not in rule:
        return False
    try:
        return ip_address(host) in ip_network(rule)
    except ValueError:
        return False


def host_problem(host: str) -> str | None:
    """Why a host of a right would never match anybody."""
    if host == ANY_NAME:
        return None
    try:
        ip_network(host) if "/" in host else ip_address(host)
    except ValueError:
        return f"{host!r} is neither an address nor a network nor *"
    return None


def granting(operation: Operation) -> Iterable[int]:
    """What would allow it: the operation itself, and those that imply it."""
    return sorted(_IMPLYING.get(operation, frozenset((operation,))))
