"""Door: the web console: one page and its files. Everything it shows it asks of `/api/v1`, as anybody may (decision 0037).

GET /                        for a browser; programs get a few links
GET /console, /console/…     the page, whatever comes after: the path is the page's own business
GET /console/assets/{name}   its scripts and styles, for ever the same under the same name
"""

from __future__ import annotations

import msgspec

from headrace.http.console import assets
from headrace.http.messages import Request, Response
from headrace.http.problem import problem
from headrace.http.rest.reading import answer
from headrace.http.router import Router
from headrace.security.rights import BEFORE_LOGIN

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
GUARDS = (
    ("content-security-policy", POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
"""W20. `nosniff` and `cross-origin-resource-policy` are on every answer to a GET already."""
FOR_EVER = ("cache-control", "public, max-age=31536000, immutable")
ASK_EACH_TIME = ("cache-control", "no-cache")
LINKS = {
    "api": "/api/v1",
    "openapi": "/openapi.json",
    "health": "/api/v1/health",
    "ready": "/readyz",
    "metrics": "/metrics",
}


class FrontLinks(msgspec.Struct):
    name: str
    version: str
    links: dict[str, str]


class ConsoleDoor:
    def __init__(self, version: str, *, is_on: bool = True) -> None:
        self._version = version
        self._is_on = is_on

    def mount(self, router: Router) -> None:
        if not self._is_on:
            return
        for path in ("/console", "/console/", "/console/{path*}"):
            router.add("GET", path, self._page, BEFORE_LOGIN)
        router.add("GET", "/console/assets/{name}", self._asset, BEFORE_LOGIN)

    def front(self, request: Request) -> Response:
        """What stands at `/`, where SQS is not meant: a page for people, links for programs."""
        if self._is_on and "text/html" in request.header(b"accept"):
            return self._page(request)
        links = {"console": "/console", **LINKS} if self._is_on else LINKS
        varies = (("vary", "accept"),)
        return answer(FrontLinks("headrace", self._version, links), headers=varies)

    def _page(self, request: Request) -> Response:
        tag = assets.page_tag()
        headers = (*GUARDS, ASK_EACH_TIME, ("etag", tag), ("vary", "accept"))
        if request.header(b"if-none-match") == tag:
            return Response(b"", 304, "", headers)
        found = assets.page()
        return Response(found.body, 200, found.content_type, headers)

    def _asset(self, request: Request) -> Response:
        found = assets.find(request.params["name"], request.header(b"accept-encoding"))
        if found is None:
            return problem(
                404, "NOT_FOUND", "the console has no such file",
                hint="It was built anew: reload the page.", request_id=request.request_id, instance=request.path,
            )  # fmt: skip
        packed = (("content-encoding", found.encoding),) if found.encoding else ()
        headers = (*GUARDS, FOR_EVER, ("vary", "accept-encoding"), *packed)
        return Response(found.body, 200, found.content_type, headers)
