"""Machine: what a request needs, held against what its sender may (A37, A39, A44).

A denial is as small as the API allows. Where a request is a list of things (`Parts`), each is judged for itself: what is denied is taken
out before the handler sees it, and its row of the answer is the one that the API has for it. What concerns the whole request (its
group, its transactional id, the cluster) refuses all of it. In mode observe nothing is taken out; it is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, Principal
from headrace.security.access import TRUSTED, Access
from headrace.security.authorizer import Authorizer
from headrace.security.denials import Denials
from headrace.security.places import (
    MANY,
    Lookups,
    Named,
    http_names,
    is_asked_for,
    is_of_part,
    kafka_names,
    part_names,
)
from headrace.security.rights import Operation, Resource, Right, Rights

KINDS = {
    Resource.TOPIC: ErrorKind.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorKind.GROUP_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""For the others the cluster answers."""

ABSENT = {
    Resource.TOPIC: ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
    Resource.GROUP: ErrorKind.NOT_FOUND,
}
"""What is said over HTTP about something that the caller may not see."""

_WHOLE = (Named(""),)


class Parts(NamedTuple):
    """A list of things in a request, and the list of what becomes of them in the answer."""

    request: str
    response: str
    together: bool = False
    """What is allowed is not attempted either when one is denied."""


class RefusedEntry(NamedTuple):
    part: Parts
    entry: object
    kind: ErrorKind


class Missing(NamedTuple):
    right: Right
    name: str
    by_id: bool = False

    @property
    def kind(self) -> ErrorKind:
        return KINDS.get(self.right.resource, ErrorKind.CLUSTER_AUTHORIZATION_FAILED)

    @property
    def words(self) -> str:
        return f"needs {self.right} {self.name}".rstrip()


class Denied(NamedTuple):
    whole: Missing | None
    """All of the request is refused."""
    refused: Sequence[RefusedEntry]
    """The request has only the rest."""
    is_empty: bool
    """Nothing is left to be done."""


class Guard:
    def __init__(self, authorizer: Authorizer, lookups: Lookups, denials: Denials) -> None:
        self.authorizer = authorizer
        self._lookups = lookups
        self._denials = denials

    def admit(self, principal: Principal, host: str, client_id: str, credential: str = "") -> Access | None:
        """What this sender may do; None when nobody is heard who has not said who they are (A14)."""
        if principal.is_broker:
            return TRUSTED
        if principal == ANONYMOUS:
            if self.authorizer.enforces:
                return None
            self._denials.nameless(host, client_id)
        return Access(self.authorizer, self._denials, principal, host, credential)

    # -- Kafka -------------------------------------------------------------------------------------------------------

    def judge(self, rights: Rights, parts: Sequence[Parts], request: object, access: Access) -> Denied | None:
        """None: all of it may be done. Otherwise the request has lost what may not."""
        denied: dict[str, list[tuple[int, ErrorKind]]] = {}
        for choices in rights.needs:
            divided = [part for part in parts if any(is_of_part(right, part.request) for right in choices)]
            if divided:
                self._judge_parts(choices, divided, request, access, denied)
                choices = _outside(choices, divided)
            lacking = self._lacking(choices, lambda right: _asked(right, request, self._lookups), access)
            if lacking is not None and access.denied(
                lacking.right.operation, lacking.right.resource, lacking.name
            ):
                return Denied(lacking, refuse_all(parts, request, lacking.kind), True)
        unmade = self._unmade(rights, lambda right: kafka_names(right, request, self._lookups), access)
        if unmade is not None:
            return Denied(unmade, refuse_all(parts, request, unmade.kind), True)
        return _take_out(parts, request, denied) if denied else None

    def _judge_parts(
        self,
        choices: tuple[Right, ...],
        divided: Sequence[Parts],
        request: object,
        access: Access,
        denied: dict[str, list[tuple[int, ErrorKind]]],
    ) -> None:
        for part in divided:
            own = tuple(right for right in choices if is_of_part(right, part.request))
            rest = tuple(right for right in choices if not right.places)
            if rest and self._lacking(rest, lambda right: _WHOLE, access) is None:
                continue  # the cluster's right is enough for all of them
            for place, entry in enumerate(getattr(request, part.request) or ()):
                lacking = self._lacking(
                    own,
                    lambda right, entry=entry, part=part: part_names(  # type: ignore[misc]
                        right, part.request, request, entry, self._lookups
                    ),
                    access,
                )
                if lacking is None:
                    continue
                right = lacking.right
                if access.denied(right.operation, right.resource, lacking.name):
                    denied.setdefault(part.request, []).append((place, _kind(lacking, access)))

    def _lacking(
        self, choices: Iterable[Right], names: Callable[[Right], Iterable[Named]], access: Access
    ) -> Missing | None:
        """None when one of them is there; else what the last of them lacks."""
        lacking: Missing | None = None
        for right in choices:
            lacking = _first_missing(right, names(right), access)
            if lacking is None:
                return None
        return lacking

    def _unmade(
        self, rights: Rights, names: Callable[[Right], Iterable[Named]], access: Access
    ) -> Missing | None:
        """What a request would make by naming it, and may not."""
        for right in rights.makes:
            if right.resource is not Resource.TOPIC:
                continue
            for name, _ in dict.fromkeys(names(right)):
                if (
                    not self._lookups.is_topic(name)
                    and not access.may(Operation.CREATE, Resource.CLUSTER, "")
                    and access.refuses(Operation.CREATE, Resource.TOPIC, name)
                ):
                    return Missing(right, name)
        return None

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def check_http(
        self, rights: Rights, params: Mapping[str, str], body: Mapping[str, object], access: Access
    ) -> None:
        """Raises ACCESS_DENIED, which names the right that is missing; what the path names and the caller may not even
        see is not found, whether it is there or not (A45)."""

        def names(right: Right) -> Iterable[Named]:
            return _asked_http(right, params, body, self._lookups)

        for choices in rights.needs:
            lacking = self._lacking(choices, names, access)
            if lacking is None:
                continue
            right = lacking.right
            if access.denied(right.operation, right.resource, lacking.name):
                raise _refusal(lacking, access)
        if rights.makes:
            written = Right(Operation.CREATE, Resource.TOPIC, _topic_places(rights))
            unmade = self._unmade(Rights(makes=(written,)), names, access)
            if unmade is not None:
                raise _refusal(unmade, access)


def _topic_places(rights: Rights) -> tuple[str, ...]:
    return tuple(
        place
        for choices in rights.needs
        for right in choices
        if right.resource is Resource.TOPIC
        for place in right.places
    )


def _refusal(lacking: Missing, access: Access) -> HeadraceError:
    right, name = lacking.right, lacking.name
    in_path = any("{" in place for place in right.places)
    if in_path and right.resource in ABSENT and not access.may(Operation.DESCRIBE, right.resource, name):
        return HeadraceError(ABSENT[right.resource], f'there is no "{name}", or you do not have access to it')
    return HeadraceError(ErrorKind.ACCESS_DENIED, lacking.words)


def _asked(right: Right, request: object, lookups: Lookups) -> Iterable[Named]:
    if right.resource is not Resource.CLUSTER:
        return kafka_names(right, request, lookups)
    if right.places:
        asked = any(True for _ in kafka_names(right, request, lookups))
    else:
        asked = is_asked_for(right, request)
    return _WHOLE if asked else ()


def _asked_http(
    right: Right, params: Mapping[str, str], body: Mapping[str, object], lookups: Lookups
) -> Iterable[Named]:
    if right.resource is Resource.CLUSTER:
        return _WHOLE
    return (Named(name) for name in http_names(right, params, body, lookups))


def _first_missing(right: Right, names: Iterable[Named], access: Access) -> Missing | None:
    for name, by_id in dict.fromkeys(names):
        held = "" if right.resource is Resource.CLUSTER else name
        if not access.may(right.operation, right.resource, held):
            return Missing(right, held, by_id)
    return None


def _kind(missing: Missing, access: Access) -> ErrorKind:
    """A44: who may not even see a topic learns nothing by its id."""
    if missing.by_id and not access.may(Operation.DESCRIBE, Resource.TOPIC, missing.name):
        return ErrorKind.UNKNOWN_TOPIC_ID
    return missing.kind


def _outside(choices: tuple[Right, ...], divided: Sequence[Parts]) -> tuple[Right, ...]:
    """What they say about places that are in no list: older versions of a request name one thing, not many."""
    lists = tuple(part.request + MANY for part in divided)
    found = []
    for right in choices:
        places = tuple(place for place in right.places if not place.startswith(lists))
        if places:
            found.append(right._replace(places=places))
    return tuple(found)


def refuse_all(parts: Sequence[Parts], request: object, kind: ErrorKind) -> list[RefusedEntry]:
    return [
        RefusedEntry(part, entry, kind) for part in parts for entry in getattr(request, part.request) or ()
    ]


def _take_out(
    parts: Sequence[Parts], request: object, denied: Mapping[str, list[tuple[int, ErrorKind]]]
) -> Denied:
    refused: list[RefusedEntry] = []
    left = 0
    for part in parts:
        entries = getattr(request, part.request) or ()
        kinds: dict[int, ErrorKind] = {}
        for place, kind in denied.get(part.request, ()):
            kinds.setdefault(place, kind)
        if kinds and part.together:
            for place in range(len(entries)):
                kinds.setdefault(place, ErrorKind.OPERATION_NOT_ATTEMPTED)
        if kinds:
            refused += [RefusedEntry(part, entries[place], kind) for place, kind in kinds.items()]
            rest = [entry for place, entry in enumerate(entries) if place not in kinds]
            setattr(request, part.request, rest)
        left += len(entries) - len(kinds)
    return Denied(None, refused, not left)
