"""Adapter: the console's files out of the wheel: read when they are first asked for, then kept.

`assets/` is built from `console/` and committed, so nobody but who changes the console needs Node. Scripts and styles lie there
compressed (`.br`, `.gz`) under names that hold the hash of their content; the page itself is plain.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

PAGE = "index.html"
TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
}
PACKINGS = (("br", ".br"), ("gzip", ".gz"))
"""As a request names them, best first, and how the files are called."""


class Asset(NamedTuple):
    body: bytes
    content_type: str
    encoding: str
    """Empty: as it is."""


@cache
def page() -> Asset:
    return Asset(_read(PAGE), TYPES["html"], "")


@cache
def page_tag() -> str:
    """Changes with every build: the page names its scripts by their hashes."""
    return f'"{hashlib.sha256(page().body).hexdigest()[:16]}"'


def find(name: str, accepted: str) -> Asset | None:
    """A script, a style or a picture, packed in a way that the client takes."""
    if name not in _names():
        return None
    taken = {part.partition(";")[0].strip() for part in accepted.lower().split(",")}
    for encoding, suffix in PACKINGS:
        if encoding in taken:
            return _packed(name, encoding, suffix)
    return _plain(name)


@cache
def _names() -> frozenset[str]:
    """What can be asked for. Built from the directory, so no path of a client ever reaches the file system."""
    suffix = PACKINGS[0][1]
    return frozenset(
        entry.name.removesuffix(suffix) for entry in _folder().iterdir() if entry.name.endswith(suffix)
    )


@cache
def _packed(name: str, encoding: str, suffix: str) -> Asset:
    return Asset(_read(name + suffix), _type(name), encoding)


@cache
def _plain(name: str) -> Asset:
    return Asset(gzip.decompress(_read(name + ".gz")), _type(name), "")


def _type(name: str) -> str:
    return TYPES[name.rpartition(".")[2]]


def _read(name: str) -> bytes:
    return (_folder() / name).read_bytes()


def _folder() -> Traversable:
    return files("headrace.http.console") / "assets"
