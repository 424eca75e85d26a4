"""Machine: what a request needs, held against what its sender may (A37, A39). A door without a guard is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import Principal
from headrace.security.authorizer import Authorizer
from headrace.security.places import Lookups, http_names, is_asked_for, kafka_names
from headrace.security.rights import Resource, Right, Rights

KINDS = {
    Resource.TOPIC: ErrorKind.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorKind.GROUP_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""For the others the cluster answers."""


class Missing(NamedTuple):
    right: Right
    name: str

    @property
    def kind(self) -> ErrorKind:
        return KINDS.get(self.right.resource, ErrorKind.CLUSTER_AUTHORIZATION_FAILED)

    @property
    def words(self) -> str:
        return f"needs {self.right} {self.name}".rstrip()


class Guard:
    def __init__(self, authorizer: Authorizer, lookups: Lookups) -> None:
        self._authorizer = authorizer
        self._lookups = lookups

    def kafka(self, rights: Rights, request: object, caller: Principal, host: str) -> Missing | None:
        """What the sender of a Kafka request lacks."""

        def names(right: Right) -> Iterable[str]:
            if right.resource is not Resource.CLUSTER:
                return kafka_names(right, request, self._lookups)
            if right.places:
                asked = any(True for _ in kafka_names(right, request, self._lookups))
            else:
                asked = is_asked_for(right, request)
            return ("",) if asked else ()

        return self._missing(rights, names, caller, host)

    def check_http(
        self,
        rights: Rights,
        params: Mapping[str, str],
        body: Mapping[str, object],
        caller: Principal,
        host: str,
    ) -> None:
        """Raises ACCESS_DENIED, which names the right that is missing (A45)."""

        def names(right: Right) -> Iterable[str]:
            if right.resource is Resource.CLUSTER:
                return ("",)
            return http_names(right, params, body, self._lookups)

        missing = self._missing(rights, names, caller, host)
        if missing is not None:
            raise HeadraceError(ErrorKind.ACCESS_DENIED, missing.words)

    def _missing(
        self, rights: Rights, names: Callable[[Right], Iterable[str]], caller: Principal, host: str
    ) -> Missing | None:
        if caller.is_broker or rights.before_login:
            return None  # a broker has proved itself, and ClusterAction is its own (A49)
        for choices in rights.needs:
            lacking = [self._first_denied(right, names(right), caller, host) for right in choices]
            if None not in lacking:
                return lacking[-1]
        return None

    def _first_denied(
        self, right: Right, names: Iterable[str], caller: Principal, host: str
    ) -> Missing | None:
        decide = self._authorizer.decide
        for name in dict.fromkeys(names):
            if not decide(caller, host, right.operation, right.resource, name).allowed:
                return Missing(right, name)
        return None
