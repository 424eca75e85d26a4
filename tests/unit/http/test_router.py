from __future__ import annotations

import pytest

from headrace.http.messages import Response
from headrace.http.router import Match, NoRoute, Router
from headrace.security.rights import OWN


def handler(_request: object) -> Response:
    return Response()


@pytest.fixture
def router() -> Router:
    routes = Router()
    routes.add("GET", "/topics", handler, OWN)
    routes.add("POST", "/topics/{topic}/records", handler, OWN)
    routes.add("GET", "/topics/{topic}/records", handler, OWN)
    routes.add("GET", "/topics/special/records", handler, OWN)
    routes.add("GET", "/{account}/{queue}", handler, OWN)
    routes.add("GET", "/console/{path*}", handler, OWN)
    return routes


@pytest.mark.parametrize(
    ("method", "path", "template", "params"),
    [
        ("GET", "/topics", "/topics", {}),
        ("HEAD", "/topics", "/topics", {}),
        ("POST", "/topics/orders/records", "/topics/{topic}/records", {"topic": "orders"}),
        ("POST", "/topics/special/records", "/topics/{topic}/records", {"topic": "special"}),
        ("GET", "/topics/special/records", "/topics/special/records", {}),
        ("GET", "/topics/a%2Fb/records", "/topics/{topic}/records", {"topic": "a/b"}),
        ("GET", "/topics/gr%C3%BC%C3%9Fe/records", "/topics/{topic}/records", {"topic": "grüße"}),
        ("GET", "/000000000000/q", "/{account}/{queue}", {"account": "000000000000", "queue": "q"}),
        ("GET", "/console/js/app.js", "/console/{path*}", {"path": "js/app.js"}),
    ],
)
def test_match(router: Router, method: str, path: str, template: str, params: dict[str, str]) -> None:
    found = router.resolve(method, path)
    assert isinstance(found, Match)
    assert (found.route.template, dict(found.params)) == (template, params)


@pytest.mark.parametrize(
    "path", ["/topics/", "/topics//records", "/nope", "", "*", "/a/b/c/d", "/" + "a/" * 100]
)
def test_not_found(router: Router, path: str) -> None:
    assert router.resolve("GET", path) == NoRoute()


def test_method_not_allowed_names_the_others(router: Router) -> None:
    assert router.resolve("DELETE", "/topics/x/records") == NoRoute(("GET", "HEAD", "POST"))
    assert router.resolve("POST", "/topics") == NoRoute(("GET", "HEAD"))


@pytest.mark.parametrize("path", ["/topics/%ff/records", "/topics/a%00b/records", "/topics/a%0d%0ab/records"])
def test_x24_path_values_are_printable_text(router: Router, path: str) -> None:
    assert router.resolve("GET", path) == NoRoute(is_malformed=True)


def test_mistakes_in_templates_are_errors(router: Router) -> None:
    for template in ("topics", "/a/{b*}/c", "/a/{1}", "/{other}/{queue}", "/a//{b}", "/a/x{b}"):
        with pytest.raises(ValueError):
            router.add("GET", template, handler, OWN)
    with pytest.raises(ValueError, match="twice"):
        router.add("GET", "/topics", handler, OWN)
    with pytest.raises(ValueError, match="twice"):
        router.add("POST", "/topics/{topic}/records", handler, OWN)
    with pytest.raises(ValueError):
        router.add("BREW", "/coffee", handler, OWN)


def test_routes_lists_everything(router: Router) -> None:
    assert [(r.method, r.template) for r in router.routes()][:2] == [
        ("GET", "/console/{path*}"),
        ("GET", "/topics"),
    ]
    assert len(router.routes()) == 6
