"""Door: a route is declared once, at its handler: method, path, rights, what it takes and answers. The router, the guard, the OpenAPI
document and the pages made from it all come from that ([decision 0065](../../../docs/decisions/0065-a-route-is-declared-at-its-handler.md)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from headrace.http.contract import Contract
from headrace.http.router import Router
from headrace.security.rights import Rights

H = TypeVar("H", bound=Callable[..., object])

_DECLARED = "declared_routes"


class Declared(NamedTuple):
    method: str
    template: str
    rights: Rights
    contract: Contract
    max_body_bytes: int | None
    any_body: bool


def route(
    method: str,
    template: str,
    rights: Rights,
    contract: Contract,
    *,
    max_body_bytes: int | None = None,
    any_body: bool = False,
) -> Callable[[H], H]:
    """A handler may have several: each is a route of its own."""

    def declare(handler: H) -> H:
        routes = [Declared(method, template, rights, contract, max_body_bytes, any_body), *routes_of(handler)]
        setattr(handler, _DECLARED, routes)
        return handler

    return declare


def routes_of(handler: object) -> list[Declared]:
    found: list[Declared] = getattr(handler, _DECLARED, [])
    return found


class Door:
    """Its handlers are declared with `route`."""

    def mount(self, router: Router) -> None:
        for name, handler in vars(type(self)).items():
            for one in routes_of(handler):
                router.add(
                    one.method,
                    one.template,
                    getattr(self, name),
                    one.rights,
                    max_body_bytes=one.max_body_bytes,
                    any_body=one.any_body,
                    contract=one.contract,
                )
