"""Command: asking a broker over HTTP: JSON in and out, refusals as failures with the broker's own words."""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from headrace import __version__
from headrace.cli.failure import Exit, Failure, exit_of
from headrace.cli.profile import LOG_IN, Profile
from headrace.core.errors import ErrorKind

_BY_STATUS = {
    413: Exit.USAGE,
    401: Exit.DENIED,
    403: Exit.DENIED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    504: Exit.TIMEOUT,
}

CHUNK = 64 * 1024
_REQUEST = re.compile(
    r"\b(GET|POST|DELETE) /api/v1/(topics|queues|groups|webhooks|subscriptions)(?:/([\w.-]+))?"
)

_CHANGE = re.compile(r'PATCH /api/v1/queues/(\S+) with {"(\w+)": true}')


class HttpLogin(NamedTuple):
    user: str
    password: str


class HttpLink:
    def __init__(self, profile: Profile, login: HttpLogin | None = None) -> None:
        """`login`: as somebody else than the profile says."""
        self._login = login
        self._timeout_s = profile.timeout_ms / 1000
        self._profile = profile
        self._answers = ""

    @property
    def address(self) -> str:
        """The one that has answered."""
        return self._answers

    @cached_property
    def _addresses(self) -> list[str]:
        if not self._profile.url:
            from headrace.cli.http_address import learned_address

            return [learned_address(self._profile)]
        return [address.strip().rstrip("/") for address in self._profile.url.split(",")]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str] | None = None,
        wait_ms: int = 0,
    ) -> Any:
        """`path` is made of quoted parts (`part`). `wait_ms` is how long the broker itself may take."""
        with self._asked(method, path, body, query, wait_ms) as response:
            content = response.read()
        return json.loads(content) if content else None

    def download(self, path: str, query: dict[str, str]) -> Iterator[bytes]:
        """An answer of any length, piece by piece; what ends before its end is a failure."""
        with self._asked("GET", path, None, query, 0) as response:
            while piece := response.read(CHUNK):
                yield piece

    @contextmanager
    def _asked(
        self, method: str, path: str, body: Any, query: dict[str, str] | None, wait_ms: int
    ) -> Iterator[http.client.HTTPResponse]:
        connection, prefix = self._connected(wait_ms)
        target = prefix + path + (f"?{urlencode(query)}" if query else "")
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, target, data, self._headers(data is not None))
            response = connection.getresponse()
            if response.status >= 400:
                raise _refusal(response.status, response.read())
            yield response
        except TimeoutError:
            raise Failure(Exit.TIMEOUT, f"{self._answers} did not answer in time") from None
        except (OSError, http.client.HTTPException) as problem:
            raise _nobody([f"{self._answers}: {_reason(problem)}"]) from None
        finally:
            connection.close()

    def _connected(self, wait_ms: int) -> tuple[http.client.HTTPConnection, str]:
        """To the first address that takes a connection, and the path before all paths there."""
        reasons = []
        for url in [self._answers] if self._answers else self._addresses:
            address = urlsplit(url)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise Failure(Exit.USAGE, f"{url} is not an HTTP address", "--url http://localhost:9324")
            connection = self._connection(address.scheme, address.hostname, address.port, wait_ms)
            try:
                connection.connect()
            except OSError as problem:
                connection.close()
                reasons.append(f"{url}: {_reason(problem)}")
                continue
            self._answers = url
            return connection, address.path.rstrip("/")
        raise _nobody(reasons)

    def _headers(self, has_body: bool) -> dict[str, str]:
        headers = {"X-Headrace-Client": f"cli/{__version__}"}
        profile = self._profile
        if self._login is None and profile.token_file:
            headers["Authorization"] = f"Bearer {profile.token}"
        elif self._login is not None or profile.user:
            user, password = self._login or (profile.user, profile.password)
            headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        if has_body:
            headers["Content-Type"] = "application/json"
        return headers

    def _connection(
        self, scheme: str, host: str, port: int | None, wait_ms: int
    ) -> http.client.HTTPConnection:
        seconds = self._timeout_s + wait_ms / 1000
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._profile.tls_ca or None)
        except OSError as problem:
            raise Failure(Exit.USAGE, f"{self._profile.tls_ca}: {problem}", "check HEADRACE_TLS_CA") from None
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def all_items(self, path: str, query: dict[str, str] | None = None, limit: int = 10_000) -> list[Any]:
        """Every page of a list, up to `limit` items."""
        items: list[Any] = []
        cursor = ""
        while len(items) < limit:
            asked = {**(query or {}), **({"cursor": cursor} if cursor else {})}
            page = self.ask("GET", path, query=asked)
            items += page["items"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
        return items[:limit]


def _reason(problem: Exception) -> str:
    """Without the number that the system has for it."""
    words = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return words[:1].lower() + words[1:]


def _nobody(reasons: list[str]) -> Failure:
    return Failure(
        Exit.UNREACHABLE,
        f"no broker answers at {'; '.join(reasons)}",
        "start one with:  headrace serve\nor another: --url URL, HEADRACE_URL or --context NAME",
    )


def part(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def _refusal(status: int, content: bytes) -> Failure:
    try:
        problem = json.loads(content)
        if "error_code" in problem:  # the schema registry's words
            return Failure(
                _BY_STATUS.get(status, Exit.FAILED),
                problem["message"],
                code=f"SCHEMA_{problem['error_code']}",
            )
        detail, hint, code = problem["detail"], problem.get("hint", ""), problem["code"]
    except (ValueError, KeyError, TypeError):
        return Failure(Exit.FAILED, f"the broker answered with status {status}")
    kind = getattr(ErrorKind, code, None)
    exit_code = exit_of(kind) if isinstance(kind, ErrorKind) else Exit.FAILED
    if exit_code is Exit.FAILED:
        exit_code = _BY_STATUS.get(status, Exit.FAILED)
    return Failure(exit_code, detail, cli_words(hint), code=code)


def cli_words(hint: str) -> str:
    """The broker's hints name requests; somebody at a command line wants commands (F52)."""

    if "/openapi.json" in hint:
        return ""
    if hint.startswith("Send Authorization:"):
        return LOG_IN

    def command(match: re.Match[str]) -> str:
        verb = {"GET": "list", "POST": "create", "DELETE": "delete"}[match[1]]
        name = match[3] or ("" if verb == "list" else "NAME")
        return " ".join(("headrace", match[2].removesuffix("s"), verb, name)).rstrip()

    return _REQUEST.sub(command, _CHANGE.sub(r"headrace queue set \1 --\2", hint))
