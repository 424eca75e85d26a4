"""Adapter: a schema registry that speaks Confluent's REST, ours or another: the newest schema of a subject, and what an id means."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError

_SECONDS = 30


class Registered(NamedTuple):
    id: int
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str


def newest_schema(url: str, subject: str) -> Registered:
    found = _get(url, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")
    return Registered(int(found["id"]), str(found.get("schemaType") or "AVRO"), str(found["schema"]))


@lru_cache(maxsize=1024)
def schema_text(url: str, schema_id: int) -> str:
    """An id means one schema for ever."""
    return str(_get(url, f"schemas/ids/{schema_id}")["schema"])


def _get(url: str, path: str) -> Any:
    where = f"{url.rstrip('/')}/{path}"
    if not where.startswith(("http://", "https://")):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, f"{url} is no http:// or https:// address")
    try:
        with urllib.request.urlopen(where, timeout=_SECONDS) as answer:  # noqa: S310 - looked at above
            return json.load(answer)
    except urllib.error.HTTPError as problem:
        raise HeadraceError(
            ErrorKind.NOT_FOUND if problem.code == 404 else ErrorKind.INVALID_PARAMETER,
            f"the schema registry answers {problem.code} to {where}",
            "Register a schema for the subject first, or name another with subject = …",
        ) from None
    except (OSError, ValueError) as problem:
        raise HeadraceError(
            ErrorKind.NETWORK_EXCEPTION, f"the schema registry at {url} does not answer: {problem}"
        ) from None
