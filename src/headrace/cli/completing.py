"""Command: names that exist on the broker, for the shell's completion: within 300 ms or not at all, and cached."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.cli.broker_link import BrokerLink

BUDGET_MS = 300
FRESH_SECONDS = 10


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _starting(
        incomplete, "topics", ctx, lambda link: list(link.topics(internal=incomplete.startswith("_")))
    )


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    def ask(link: BrokerLink) -> list[str]:
        listed = link.answer(link.admin.list_consumer_groups(request_timeout=link.timeout_s))
        return [group.group_id for group in listed.valid]

    return _starting(incomplete, "groups", ctx, ask)


def _starting(
    incomplete: str, what: str, ctx: click.Context, ask: Callable[[BrokerLink], list[str]]
) -> list[str]:
    try:
        return [name for name in _names(what, ctx, ask) if name.startswith(incomplete)]
    except Exception:
        return []  # completion that complains would garble the line somebody is typing


def _names(what: str, ctx: click.Context, ask: Callable[[BrokerLink], list[str]]) -> list[str]:
    from headrace.cli.broker_link import BrokerLink
    from headrace.cli.profile import load_profile

    profile = load_profile({**ctx.find_root().obj.flags, "timeout_ms": BUDGET_MS})
    cache = _cache_file(f"{what}-{profile.bootstrap}")
    if cache.is_file() and time.time() - cache.stat().st_mtime < FRESH_SECONDS:
        cached: list[str] = json.loads(cache.read_text())
        return cached
    names = ask(BrokerLink(profile))
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(names))
    return names


def _cache_file(name: str) -> Path:
    import platformdirs

    safe = "".join(char if char.isalnum() or char in "-._" else "_" for char in name)
    return Path(platformdirs.user_cache_dir("headrace")) / "completion" / safe
