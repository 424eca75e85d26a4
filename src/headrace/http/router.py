"""Machine: which handler a method and a path belong to.

A template is literal segments and `{name}` segments; a last segment `{name*}` takes the rest of the path. A literal
beats a name, and a name beats a rest. Path values are percent-decoded after the path was cut, so an encoded slash
stays inside its segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from headrace.http.contract import Contract
from headrace.http.messages import Handler, Response
from headrace.security.rights import BEFORE_LOGIN, Rights

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""The allow-list of X20; any other method is 501."""

MAX_PATH_SEGMENTS = 32
_NO_PARAMS: Mapping[str, str] = {}

TooLarge = Callable[[Mapping[bytes, bytes], int], Response]
"""Headers of a request and the cap that its body exceeds -> the refusal, in the words of the route's own protocol."""


Guarded = Callable[[Rights, Handler], Handler]


class Route(NamedTuple):
    method: str
    template: str
    handler: Handler
    rights: Rights
    max_body_bytes: int | None
    """None: the server's own limit."""
    any_body: bool = False
    """Else a body is JSON and says so, which no form of a web page can (A6)."""
    too_large: TooLarge | None = None
    """None: problem+json."""
    contract: Contract | None = None
    """What it takes and answers; None: it is not part of the public API."""


class Match(NamedTuple):
    route: Route
    params: Mapping[str, str]


class NoRoute(NamedTuple):
    """No such path (`allowed` is empty, 404), the path but not the method (405), or a path value that is not text."""

    allowed: tuple[str, ...] = ()
    is_malformed: bool = False


class _Node:
    __slots__ = ("literals", "name", "named", "rest", "routes")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.rest: _Node | None = None
        self.name = ""
        self.routes: dict[str, Route] = {}


class Router:
    def __init__(self, guarded: Guarded | None = None) -> None:
        """`guarded` puts a guard before each handler; without one everything is allowed (mode open)."""
        self._guarded = guarded
        self._root = _Node()
        self._static: dict[str, dict[str, Match]] = {}
        self.otherwise: Handler | None = None
        """Takes every request that no route takes: while a broker starts, most doors are not there yet."""

    def add(
        self,
        method: str,
        template: str,
        handler: Handler,
        rights: Rights,
        *,
        max_body_bytes: int | None = None,
        any_body: bool = False,
        too_large: TooLarge | None = None,
        contract: Contract | None = None,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"{method} is not one of {', '.join(METHODS)}")
        if not template.startswith("/"):
            raise ValueError(f"the template {template!r} must start with a slash")
        self.put(Route(method, template, handler, rights, max_body_bytes, any_body, too_large, contract))

    def put(self, route: Route) -> None:
        method, template, handler, rights, *_ = route
        if self._guarded is not None:
            route = route._replace(handler=self._guarded(rights, handler))
        if "{" not in template:
            routes = self._static.setdefault(template, {})
            if method in routes:
                raise ValueError(f"{method} {template} is routed twice")
            routes[method] = Match(route, _NO_PARAMS)
            return
        node = self._leaf(template)
        if method in node.routes:
            raise ValueError(f"{method} {template} is routed twice")
        node.routes[method] = route

    def get(self, template: str, rights: Rights) -> Callable[[Handler], Handler]:
        """`@router.get("/livez")`, for small doors."""

        def register(handler: Handler) -> Handler:
            self.add("GET", template, handler, rights)
            return handler

        return register

    def routes(self) -> list[Route]:
        """Every route, sorted: the OpenAPI page and the ACL matrix are made from it."""
        found = [match.route for routes in self._static.values() for match in routes.values()]
        stack = [self._root]
        while stack:
            node = stack.pop()
            found.extend(node.routes.values())
            stack.extend(node.literals.values())
            stack.extend(child for child in (node.named, node.rest) if child is not None)
        return sorted(found, key=lambda route: (route.template, route.method))

    def resolve(self, method: str, path: str) -> Match | NoRoute:
        static = self._static.get(path)
        if static is not None:
            match = static.get(method)
            if match is None and method == "HEAD":
                match = static.get("GET")
            if match is not None:
                return match
        found = self._resolve_template(method, path, static)
        if isinstance(found, NoRoute) and self.otherwise is not None:
            return Match(Route(method, path, self.otherwise, BEFORE_LOGIN, None), _NO_PARAMS)
        return found

    def _resolve_template(self, method: str, path: str, static: dict[str, Match] | None) -> Match | NoRoute:
        segments = path.split("/")[1:] if path.startswith("/") else []
        allowed: set[str] = set(static or ())
        if segments and len(segments) <= MAX_PATH_SEGMENTS:
            for node, names, values in _candidates(self._root, segments):
                route = node.routes.get(method)
                if route is None and method == "HEAD":
                    route = node.routes.get("GET")
                if route is not None:
                    params = _decoded(names, values)
                    return NoRoute(is_malformed=True) if params is None else Match(route, params)
                allowed.update(node.routes)
        if "GET" in allowed:
            allowed.add("HEAD")
        return NoRoute(tuple(sorted(allowed)))

    def _leaf(self, template: str) -> _Node:
        node = self._root
        segments = template.split("/")[1:]
        for position, segment in enumerate(segments):
            if segment.startswith("{") and segment.endswith("*}"):
                if position != len(segments) - 1:
                    raise ValueError(f"{segment} must be the last segment of {template}")
                if node.rest is None:
                    node.rest = _Node()
                node = node.rest
                node.name = _same_name(node.name, segment[1:-2], template)
            elif segment.startswith("{") and segment.endswith("}"):
                if node.named is None:
                    node.named = _Node()
                node = node.named
                node.name = _same_name(node.name, segment[1:-1], template)
            elif not segment or "{" in segment:
                raise ValueError(f"the template {template!r} has an unusable segment {segment!r}")
            else:
                node = node.literals.setdefault(segment, _Node())
        return node


class Behind(Router):
    """Puts routes into another router, with what `wrap` makes of their handlers."""

    def __init__(self, router: Router, wrap: Callable[[Route], Handler]) -> None:
        super().__init__()
        self._router = router
        self._wrap = wrap

    def put(self, route: Route) -> None:
        self._router.put(route._replace(handler=self._wrap(route)))

    def routes(self) -> list[Route]:
        return self._router.routes()


def _same_name(known: str, name: str, template: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} in {template} is not a name")
    if known and known != name:
        raise ValueError(f"{template} calls a segment {name!r} that another template calls {known!r}")
    return name


def _candidates(root: _Node, segments: list[str]) -> list[tuple[_Node, list[str], list[str]]]:
    """Every node with routes that the path reaches, the most literal first."""
    found: list[tuple[_Node, list[str], list[str]]] = []
    stack: list[tuple[_Node, int, list[str], list[str]]] = [(root, 0, [], [])]
    while stack:
        node, position, names, values = stack.pop()
        if position == len(segments):
            if node.routes:
                found.append((node, names, values))
            continue
        segment = segments[position]
        if node.rest is not None:
            rest = "/".join(segments[position:])
            if rest:
                found_rest = (node.rest, [*names, node.rest.name], [*values, rest])
                stack.append((found_rest[0], len(segments), found_rest[1], found_rest[2]))
        if node.named is not None and segment:
            stack.append((node.named, position + 1, [*names, node.named.name], [*values, segment]))
        literal = node.literals.get(segment)
        if literal is not None:
            stack.append((literal, position + 1, names, values))
    return found


def _decoded(names: list[str], values: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        if "%" in value:
            try:
                value = unquote_to_bytes(value).decode("utf-8")
            except UnicodeDecodeError:
                return None
        if any(character < " " or character == "\x7f" for character in value):
            return None
        params[name] = value
    return params
