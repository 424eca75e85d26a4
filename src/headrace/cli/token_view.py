"""Command: tokens as commands show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.cli.output import Row

TOKENS = "/api/v1/security/tokens"


class TokenRow(Row):
    SCHEMA: ClassVar[str] = "headrace.token/v1"
    NAME: ClassVar[str] = "id"
    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int
    last_used_ms: int | None
    """To the hour at brokers where it was not used; null: never."""
    rights: list[str] | None = None
    """What it is for, as --may takes it; null: whatever its owner may."""
    token: str | None = None
    """Only when it was made just now: it is shown once."""


def token_row(found: dict[str, Any]) -> TokenRow:
    rights = found.get("rights")
    words = None if rights is None else [_words(each) for each in rights]
    return msgspec.convert({**found, "rights": words}, TokenRow)


def _words(right: dict[str, str]) -> str:
    return " ".join((spaced(right["operation"]), spaced(right["resource"]), right["name"])).rstrip()


def spaced(word: str) -> str:
    """DescribeConfigs is describe-configs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", word).lower()


def rights_in(texts: Iterable[str]) -> list[dict[str, str]] | None:
    """`read,write topic orders*`; None: nothing is said, and it may whatever its owner may."""
    rights = []
    for text in texts:
        operations, _, rest = text.strip().partition(" ")
        kind, _, name = rest.strip().partition(" ")
        if not kind or (kind != "cluster" and not name.strip()):
            raise Failure(
                Exit.USAGE,
                f"{text!r} is no right",
                "--may 'read topic orders', --may 'read,write topic orders-*'",
            )
        rights += [
            {"operation": each.replace("-", ""), "resource": kind.replace("-", ""), "name": name.strip()}
            for each in operations.split(",")
        ]
    return rights or None
