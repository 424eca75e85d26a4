"""The console's door and its built files (W1, W16, W20; acceptance 1): small, packed, named by their content, and built from what is here."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import cramjam
import pytest

from headrace.http.browsers import BrowserPolicy, is_link_to_page
from headrace.http.console import assets
from headrace.http.console.page import ConsoleDoor
from headrace.http.messages import Request, Response
from headrace.http.router import Match, Router

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "src" / "headrace" / "http" / "console" / "assets"
SOURCES = ROOT / "console"
KIB = 1024


def ask(path: str, *, is_on: bool = True, **headers: str) -> Response:
    router = Router()
    ConsoleDoor("0", is_on=is_on).mount(router)
    found = router.resolve("GET", path)
    assert isinstance(found, Match), found
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    answer = found.route.handler(Request("GET", path, headers=given, params=found.params))
    assert isinstance(answer, Response)
    return answer


def front(accept: str, *, is_on: bool = True) -> Response:
    return ConsoleDoor("0", is_on=is_on).front(Request("GET", "/", headers={b"accept": accept.encode()}))


def named() -> set[str]:
    """What the page and its scripts ask for."""
    texts = [assets.page().body.decode()]
    texts += [gzip.decompress(path.read_bytes()).decode() for path in BUILT.glob("*.js.gz")]
    found = {name for text in texts for name in re.findall(r"/console/assets/([\w.-]+)", text)}
    return found | {name for text in texts for name in re.findall(r'"\./([\w-]+\.js)"', text)}


def test_the_page_is_at_every_path_because_the_path_is_its_own_business() -> None:
    page = ask("/console")
    assert page.status == 200 and page.content_type.startswith("text/html")
    for path in ("/console/", "/console/topics", "/console/topics/orders.v1", "/console/groups/a%2Fb"):
        assert ask(path).body == page.body


def test_w20_nothing_inline_runs_and_nobody_frames_it() -> None:
    for answer in (ask("/console"), ask(f"/console/assets/{sorted(named())[0]}")):
        headers = dict(answer.headers)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
    text = assets.page().body.decode()
    assert not re.search(r"<script>|<style|style=|\son\w+=", text)


def test_w16_nothing_is_asked_of_anybody_else() -> None:
    """A link in a text is no request; what loads is `src`, `href`, `url(` and `import`."""
    page = assets.page().body.decode()
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert address.startswith("/console/assets/")
    for path in BUILT.glob("*.css.gz"):
        assert "url(" not in gzip.decompress(path.read_bytes()).decode()
    for path in BUILT.glob("*.js.gz"):
        text = gzip.decompress(path.read_bytes()).decode()
        assert not re.search(r"""(?:from|import)\s*\(?["']https?:""", text)
        assert "innerHTML=" not in text.replace('"innerHTML"', "") or "dangerouslySetInnerHTML" in text


def test_the_page_is_asked_for_each_time_and_its_files_never_again() -> None:
    headers = dict(ask("/console").headers)
    assert headers["cache-control"] == "no-cache"
    again = ask("/console", if_none_match=headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert "immutable" in dict(ask(f"/console/assets/{sorted(named())[0]}").headers)["cache-control"]


@pytest.mark.parametrize("name", sorted(named()))
def test_a_file_is_packed_as_the_client_takes_it(name: str) -> None:
    plain = ask(f"/console/assets/{name}")
    for accepted, encoding in (("gzip, deflate, br", "br"), ("gzip;q=1", "gzip"), ("identity", "")):
        answer = ask(f"/console/assets/{name}", accept_encoding=accepted)
        assert dict(answer.headers).get("content-encoding", "") == encoding
        assert answer.content_type == plain.content_type
        body = answer.body
        if encoding == "br":
            body = bytes(cramjam.brotli.decompress(body))
        elif encoding == "gzip":
            body = gzip.decompress(body)
        assert body == plain.body


def test_a_file_that_is_not_there_is_not_looked_for() -> None:
    for name in ("nothing.js", "index.html", "..%2F..%2Fpage.py", "%2Fetc%2Fpasswd", "__init__.py"):
        assert ask(f"/console/assets/{name}").status == 404


def test_acceptance_1_it_is_small() -> None:
    """At most 150 KB packed in all and 60 KB before Home is drawn; the wheel grows by less than 400 KB."""
    packed = {path.name.removesuffix(".gz"): path.stat().st_size for path in BUILT.glob("*.gz")}
    assert sum(packed.values()) <= 150 * KIB
    page = assets.page().body.decode()
    first = set(re.findall(r"/console/assets/([\w.-]+)", page))
    seen: set[str] = set()
    while first - seen:
        name = (first - seen).pop()
        seen.add(name)
        if name.endswith(".js"):  # what it imports at once; what is loaded on demand is in import(…)
            text = gzip.decompress((BUILT / f"{name}.gz").read_bytes()).decode()
            first |= set(re.findall(r'(?:from|import)\s*"\./([\w-]+\.js)"', text))
    assert sum(packed[name] for name in seen) <= 60 * KIB
    assert sum(path.stat().st_size for path in BUILT.iterdir()) <= 400 * KIB


def test_what_is_committed_was_built_from_these_sources() -> None:
    """`make console` builds it anew; `make console-test` builds it and compares the bytes."""
    files = [path for path in (SOURCES / "src").rglob("*") if path.is_file() and path.name != "types.ts"]
    files += [SOURCES / "build.mjs", SOURCES / "package-lock.json"]
    total = hashlib.sha256()
    for name in sorted(path.relative_to(SOURCES).as_posix() for path in files):
        total.update(f"{name}\n".encode())
        total.update((SOURCES / name).read_bytes())
    assert (BUILT / "built-from").read_text().strip() == total.hexdigest()


def test_every_file_that_is_there_is_used() -> None:
    there = {path.name.removesuffix(".gz") for path in BUILT.glob("*.gz")}
    assert there == {path.name.removesuffix(".br") for path in BUILT.glob("*.br")} == named()


def test_the_front_door_is_a_page_for_people_and_links_for_programs() -> None:
    assert front("text/html,application/xhtml+xml,*/*;q=0.8").body == assets.page().body
    links = front("*/*")
    assert links.content_type == "application/json" and b'"/console"' in links.body
    off = front("text/html", is_on=False)
    assert off.content_type == "application/json" and b"/console" not in off.body


def test_without_a_console_there_is_no_page() -> None:
    router = Router()
    ConsoleDoor("0", is_on=False).mount(router)
    assert router.routes() == []


LINK = {
    b"host": b"localhost:9324",
    b"sec-fetch-site": b"cross-site",
    b"sec-fetch-mode": b"navigate",
    b"sec-fetch-dest": b"document",
}


def heard(method: str, target: str, **changes: bytes) -> bool:
    headers = {**LINK, **{name.replace("_", "-").encode(): value for name, value in changes.items()}}
    is_link = is_link_to_page(method, target, headers)
    return BrowserPolicy().refusal(headers, is_link=is_link) is None


def test_w17_a_link_of_another_site_leads_to_the_page_and_to_nothing_else() -> None:
    assert heard("GET", "/") and heard("GET", "/console") and heard("GET", "/console/topics/orders")
    assert not heard("POST", "/")
    assert not heard("GET", "/?Action=PurgeQueue") and not heard("GET", "/api/v1/topics")
    assert not heard("GET", "/console/topics", sec_fetch_dest=b"iframe")
    assert not heard("GET", "/console/assets/x.js", sec_fetch_dest=b"script", sec_fetch_mode=b"no-cors")
    assert not heard("GET", "/console/topics", origin=b"https://evil.example")
    assert not heard("GET", "/console", host=b"rebound.example")


def unpacked(folder: Path) -> dict[str, bytes]:
    packed = {
        path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()) for path in folder.glob("*.gz")
    }
    return {**packed, "index.html": (folder / "index.html").read_bytes()}


def test_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("node") is None or not (SOURCES / "node_modules" / "esbuild").is_dir():
        pytest.skip("Node, or what npm installs, is not here: `make console-test` fetches it and compares")
    subprocess.run(["node", SOURCES / "build.mjs", tmp_path / "out"], check=True, cwd=SOURCES, timeout=300)
    assert unpacked(tmp_path / "out") == unpacked(BUILT)
