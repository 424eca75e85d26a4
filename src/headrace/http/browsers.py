"""Machine: which requests a web page may have made a browser send, and which of them are heard (A6, W17, X29; decision 0024).

A browser on this machine reaches this port for any page it shows. Three headers that no page can forge tell: Host (a name that
was rebound to our address is still the stranger's name), Origin (whose page asks) and Sec-Fetch-Site (how that page relates
to us). Programs send a Host of ours and none of the others, so for them the check is one look into a set and two into a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError

CLIENT = b"x-headrace-client"
"""A header that a page of another origin can't add without a preflight, which we do not grant: whoever sends it is a program."""

MAX_REMEMBERED_HOSTS = 1_000
_PREFLIGHT_S = 600
_EXPOSED = "etag, location, retry-after, x-next-cursor, x-request-id"
_OWN_SITES = (None, b"same-origin", b"none")
_JSON = (b"application/json",)

Headers = Mapping[bytes, bytes]


class BrowserRefusal(NamedTuple):
    status: int
    code: str
    detail: str
    hint: str


_FOREIGN_HOST = BrowserRefusal(
    421,
    "MISDIRECTED_REQUEST",
    "this broker does not answer to that host name",
    "Use localhost, an IP address or the advertised host; --allowed-hosts takes further names.",
)
_FOREIGN_PAGE = BrowserRefusal(
    403,
    "FOREIGN_ORIGIN",
    "a web page of another site may not ask this broker anything",
    "--allowed-origins takes the origins of pages that may, as in https://shop.example.",
)
_NOT_JSON = BrowserRefusal(
    415,
    "UNSUPPORTED_MEDIA_TYPE",
    "the body must be JSON and say so",
    "Send content-type: application/json (curl --json, or -H 'content-type: application/json').",
)


class BrowserPolicy:
    """Loopback names, addresses and `hosts` are ours, and so are the `peers` of the moment. An address is always allowed: nobody
    can rebind one. `hosts` may have `.example.com` (and everything below it) or `*` (any, for a server behind a proxy that
    checks). Raises ValueError for a setting that can't be what was meant."""

    def __init__(
        self,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        peers: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        names = {host.strip().lower().rstrip(".") for host in hosts} - {""}
        for name in names:
            if "/" in name or (":" in name and not _is_address(name)):
                raise ValueError(f"allowed_hosts: {name!r} is not a host name; leave scheme and port out")
        self._any_host = "*" in names
        self._names = frozenset(name for name in names if not name.startswith("."))
        self._suffixes = tuple(name for name in names if name.startswith("."))
        self._origins = frozenset(_origin(text) for text in origins if text.strip())
        self._peers = peers
        self._known: set[bytes | None] = {None}  # HTTP/1.0 may leave Host out; no browser does

    def refusal(self, headers: Headers, *, is_link: bool = False) -> BrowserRefusal | None:
        """`is_link`: a person follows a link to a page of ours (`is_link_to_page`); the host must be ours all the same."""
        host = headers.get(b"host")
        if host not in self._known and not self._is_ours(host or b""):
            return _FOREIGN_HOST
        if not is_link and (b"origin" in headers or b"sec-fetch-site" in headers):
            return self._judge_page(headers, host or b"")
        return None

    def _judge_page(self, headers: Headers, host: bytes) -> BrowserRefusal | None:
        origin = headers.get(b"origin")
        if origin is not None:
            if origin in self._origins:
                return None
            if origin.lower() not in (b"http://" + host.lower(), b"https://" + host.lower()):
                return _FOREIGN_PAGE
        return None if headers.get(b"sec-fetch-site") in _OWN_SITES else _FOREIGN_PAGE

    def _is_ours(self, host: bytes) -> bool:
        name = host_name(host)
        if self._any_host or name in self._names or _is_loopback_name(name) or _is_address(name):
            return self._remember(host)
        if name.endswith(self._suffixes):
            return self._remember(host)
        return any(name == peer.lower() for peer in self._peers())

    def _remember(self, host: bytes) -> bool:
        if len(self._known) >= MAX_REMEMBERED_HOSTS:
            self._known = {None}
        self._known.add(host)
        return True

    def answer_headers(self, method: str, headers: Headers) -> tuple[tuple[str, str], ...]:
        """What lets a page of a listed origin read the answer (CORS); nothing for everybody else."""
        origin = headers.get(b"origin")
        if origin not in self._origins or origin is None:
            return ()
        given = [
            ("access-control-allow-origin", origin.decode("latin-1")),
            ("access-control-expose-headers", _EXPOSED),
            ("vary", "origin"),
        ]
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            given += [
                ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
                ("access-control-max-age", str(_PREFLIGHT_S)),
            ]
            wanted = headers.get(b"access-control-request-headers")
            if wanted is not None:
                given.append(("access-control-allow-headers", wanted.decode("latin-1")))
            if b"access-control-request-private-network" in headers:
                given.append(("access-control-allow-private-network", "true"))
        return tuple(given)


def is_link_to_page(method: str, target: str, headers: Headers) -> bool:
    """Whether a browser leaves a page, of whomever, for the console's. That page says the same to everybody, can't be framed (W20) and
    has nothing in it that a stranger could read; what it then asks for, it asks as a page of ours."""
    return (
        method == "GET"
        and (target in ("/", "/console") or target.startswith("/console/"))
        and b"origin" not in headers
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
    )


def body_refusal(headers: Headers, has_body: bool) -> BrowserRefusal | None:
    """Of a request that changes something and takes JSON. What a form can send (and nothing else) gets no further, not
    even where the body does not matter: a browser too old for Origin and Sec-Fetch-Site still names its form's type."""
    given = headers.get(b"content-type")
    if given in _JSON:
        return None
    if given is None:
        return _NOT_JSON if has_body else None
    kind = given.partition(b";")[0].strip().lower()
    return None if kind in _JSON or kind.endswith(b"+json") else _NOT_JSON


def need_program(headers: Headers, method: str, instead: str) -> None:
    """Before a GET that takes messages: an `<img>` of any page must not. Raises ACCESS_DENIED.

    A program says who it is. A browser says that the page is ours (Sec-Fetch-Site), or whose it is, and that was judged."""
    if method == "HEAD":
        raise HeadraceError(ErrorKind.ACCESS_DENIED, "HEAD takes no messages", f"Use {instead}.")
    if method != "GET" or CLIENT in headers or b"origin" in headers:
        return
    if headers.get(b"sec-fetch-site") != b"same-origin":
        raise HeadraceError(
            ErrorKind.ACCESS_DENIED,
            "this takes messages, and a plain GET may come from any web page",
            f"Use {instead}, or send the header {CLIENT.decode()}: with any value.",
        )


def host_name(authority: bytes) -> str:
    """`localhost:9324` -> `localhost`, `[::1]:9324` -> `::1`."""
    text = authority.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def _is_loopback_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _origin(text: str) -> bytes:
    """As browsers send it: scheme, host and port, without a path."""
    origin = text.strip().lower().rstrip("/")
    scheme, separator, authority = origin.partition("://")
    if not separator or scheme not in ("http", "https") or not authority or set(authority) & set("/*@ "):
        raise ValueError(f"allowed_origins: {text.strip()!r} is not an origin such as https://shop.example")
    return origin.encode()
