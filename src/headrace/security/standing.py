"""Machine: what goes on in somebody's name after they have left: webhooks and schedules run as who set them last.

Whether they may is asked each time. What was set while nobody was asked for a name is nobody's: it goes on in mode open, is noted
in mode observe, and stops in mode enforced until somebody sets it again. A user that was deleted and made again is another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.principals import ANONYMOUS, USER, Principal
from headrace.security.access import Access
from headrace.security.denials import Denials
from headrace.security.image import SecurityImage
from headrace.security.records import word
from headrace.security.rights import Operation, Resource

Needed = tuple[Operation, Resource, str]


class Standing(NamedTuple):
    owner: str = ""
    """A principal; empty: nobody's."""
    owner_life: str = ""
    """Which user of that name; empty: one that has no record here."""


class StandingOrders:
    def __init__(self, image: SecurityImage, denials: Denials) -> None:
        self._image = image
        self._denials = denials

    def of(self, access: Access | None) -> Standing:
        """In whose name something is set now."""
        if access is None or access.is_nameless or access.principal.kind != USER:
            return Standing()
        return Standing(str(access.principal), self._life(access.principal.name))

    def need_named(self, access: Access | None) -> None:
        """What goes on in somebody's name goes on with all that they may: with a token that may less it is said where. Raises ACCESS_DENIED."""
        if (
            access is not None
            and self._image.rights_of(access.credential) is not None
            and self._image.enforces
        ):
            raise HeadraceError(
                ErrorKind.ACCESS_DENIED,
                "with a token that may less a move says where to, and needs Write there",
            )

    def problem(self, owner: str, owner_life: str, needed: Iterable[Needed]) -> str:
        """Why it may not go on; empty: it may, or nobody is refused anything."""
        image = self._image
        if not image.guards:
            return ""
        kind, _, name = owner.partition(":")
        principal = Principal(kind, name) if owner else ANONYMOUS
        is_gone = bool(owner_life) and self._life(name) != owner_life
        for operation, resource, thing in needed:
            if is_gone or not image.decide(principal, "", operation, resource, thing).allowed:
                self._denials.note(principal, "", operation, resource, thing)
                if image.enforces:
                    return _words(owner, is_gone, f"{word(operation)} on {word(resource).lower()} {thing}")
        return ""

    def _life(self, name: str) -> str:
        user = self._image.users.get(name)
        return "" if user is None else str(user.created_ms)


def _words(owner: str, is_gone: bool, lacking: str) -> str:
    if not owner:
        return "it was set by nobody, and names are asked for now; set it again as somebody"
    name = owner.partition(":")[2]
    return (
        f"{name} has set it, and is gone" if is_gone else f"{name} has set it, and has no {lacking} any more"
    )
