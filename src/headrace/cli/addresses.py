"""Codec: addresses as people write them."""

from __future__ import annotations

from headrace.cli.failure import Exit, Failure
from headrace.client.reaching import parse_address
from headrace.core.errors import HeadraceError


def split_address(address: str) -> tuple[str, int]:
    try:
        return parse_address(address)
    except HeadraceError as problem:
        raise Failure(Exit.USAGE, problem.detail, "write --bootstrap localhost:9092") from None
