"""Door: is this broker alive, and is it ready.

/livez says the event loop answers; restart the process when it does not. /readyz says requests will be served; send
them elsewhere when it does not. A check looks at state that others keep: it never waits and touches no disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.core.errors import HeadraceError
from headrace.http.contract import FLAG, Param, plain_text
from headrace.http.declared import Door, route
from headrace.http.messages import TEXT, Request, Response
from headrace.http.problem import problem
from headrace.security.rights import BEFORE_LOGIN

HealthCheck = Callable[[], str | None]
"""None when well, else what is wrong in a few words: Degraded when requests are served all the same."""


class Degraded(str):
    """Trouble that is told and no reason to send requests elsewhere."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> Degraded | None:
        """None when there is nothing to tell."""
        return cls(text) if text else None


OPENNESS = "x-headrace-security"

VERBOSE = Param("verbose", "one line for each check", FLAG)


class HealthDoor(Door):
    def __init__(
        self, *, live: Mapping[str, HealthCheck] | None = None, ready: Mapping[str, HealthCheck] | None = None
    ) -> None:
        self._live = dict(live or {})
        self._ready = dict(ready or {})
        self.openness: Callable[[], str] = str
        """Who is heard, in a word, where that is everybody (A55); empty: whoever proves who they are."""

    def look(self) -> dict[str, str | None]:
        """What each check of readiness says now."""
        return {name: _outcome(check) for name, check in {**self._live, **self._ready}.items()}

    @route("GET", "/livez", BEFORE_LOGIN, plain_text("Does the event loop answer?", VERBOSE))
    def _answer_live(self, request: Request) -> Response:
        return _answer(request, self._live, "alive")

    @route("GET", "/readyz", BEFORE_LOGIN, plain_text("Will requests be served?", VERBOSE))
    @route("GET", "/healthz", BEFORE_LOGIN, plain_text("As /readyz", VERBOSE))
    @route("GET", "/health", BEFORE_LOGIN, plain_text("As /readyz", VERBOSE))  # ElasticMQ's users probe it
    def _answer_ready(self, request: Request) -> Response:
        shown = _answer(request, {**self._live, **self._ready}, "ready")
        if openness := self.openness():
            shown.headers = (*shown.headers, (OPENNESS, openness))
        return shown


def _answer(request: Request, checks: Mapping[str, HealthCheck], state: str) -> Response:
    results = {name: _outcome(check) for name, check in checks.items()}
    failed = {
        name: trouble
        for name, trouble in results.items()
        if trouble is not None and not isinstance(trouble, Degraded)
    }
    is_verbose = any(name == "verbose" for name, _ in request.query_pairs)
    no_store = (("cache-control", "no-store"),)
    if failed:
        return problem(
            503,
            "NOT_" + state.upper(),
            f"not {state}: " + "; ".join(f"{name}: {trouble}" for name, trouble in failed.items()),
            hint="`headrace doctor` looks at each of these in depth.",
            request_id=request.request_id,
            instance=request.path,
            headers=no_store,
            extra={
                "checks": {name: str(trouble or "ok") for name, trouble in results.items()}
                if is_verbose
                else failed
            },
        )
    if not is_verbose:
        return Response(b"ok\n", 200, TEXT, no_store)
    lines = [
        f"[+]{name} ok" if trouble is None else f"[!]{name} {trouble}" for name, trouble in results.items()
    ]
    lines += [f"{state} check passed", ""]
    return Response("\n".join(lines).encode(), 200, TEXT, no_store)


def _outcome(check: HealthCheck) -> str | None:
    try:
        return check()
    except HeadraceError as error:
        return error.detail
    except Exception as error:  # a broken check must read as "not ready", not as a 500
        return f"the check itself failed: {type(error).__name__}"
