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
    from headrace.cli.profile import Profile

BUDGET_MS = 300
FRESH_SECONDS = 10


Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _over_kafka(what: str, ask: Callable[[BrokerLink], list[str]]) -> Completer:
    def question(profile: Profile) -> list[str]:
        from headrace.cli.broker_link import BrokerLink

        return ask(BrokerLink(profile))

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _starting(incomplete, what, ctx, question)

    return complete


def _over_http(what: str, path: str, field: str = "name", query: dict[str, str] | None = None) -> Completer:
    def question(profile: Profile) -> list[str]:
        from headrace.cli.http_link import HttpLink

        return [str(item[field]) for item in HttpLink(profile).all_items(path, query)]

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return _starting(incomplete, what, ctx, question)

    return complete


def _groups(link: BrokerLink) -> list[str]:
    listed = link.answer(link.admin.list_consumer_groups(request_timeout=link.timeout_s))
    return [group.group_id for group in listed.valid]


def _views(link: BrokerLink) -> list[str]:
    from headrace.cli.views import views_among

    return list(views_among(link, link.topics(internal=False)))


def _pipelines(link: BrokerLink) -> list[str]:
    from headrace.cli.pipelines import names_on_the_board

    return names_on_the_board(link.profile)


def _brokers(link: BrokerLink) -> list[str]:
    return sorted(map(str, link.admin.list_topics(timeout=link.timeout_s).brokers))


_all_topics = _over_kafka("all-topics", lambda link: list(link.topics(internal=True)))
_own_topics = _over_kafka("topics", lambda link: list(link.topics(internal=False)))


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Internal ones when somebody begins with their underscore."""
    return (_all_topics if incomplete.startswith("_") else _own_topics)(ctx, param, incomplete)


complete_groups = _over_kafka("groups", _groups)
complete_views = _over_kafka("views", _views)
complete_pipelines = _over_kafka("pipelines", _pipelines)
complete_brokers = _over_kafka("brokers", _brokers)
complete_queues = _over_http("queues", "/api/v1/queues", query={"kind": "queue"})
complete_queues_and_subscriptions = _over_http("all-queues", "/api/v1/queues")
complete_subscriptions = _over_http("subscriptions", "/api/v1/queues", query={"kind": "subscription"})
complete_webhooks = _over_http("webhooks", "/api/v1/webhooks")
complete_users = _over_http("users", "/api/v1/security/users")
complete_schedules = _over_http("schedules", "/api/v1/schedules")


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """No broker knows them."""
    from headrace.cli.contexts import Contexts

    return [name for name in Contexts().names() if name.startswith(incomplete)]


def _starting(
    incomplete: str, what: str, ctx: click.Context, ask: Callable[[Profile], list[str]]
) -> list[str]:
    try:
        return [name for name in _names(what, ctx, ask) if name.startswith(incomplete)]
    except Exception:
        return []  # completion that complains would garble the line somebody is typing


def _names(what: str, ctx: click.Context, ask: Callable[[Profile], list[str]]) -> list[str]:
    from headrace.cli.profile import load_profile

    profile = load_profile({**ctx.find_root().obj.flags, "timeout_ms": BUDGET_MS})
    cache = _cache_file(f"{what}-{profile.bootstrap}-{profile.url}")
    if cache.is_file() and time.time() - cache.stat().st_mtime < FRESH_SECONDS:
        cached: list[str] = json.loads(cache.read_text())
        return cached
    names = ask(profile)
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(names))
    return names


def _cache_file(name: str) -> Path:
    import platformdirs

    safe = "".join(char if char.isalnum() or char in "-._" else "_" for char in name)
    return Path(platformdirs.user_cache_dir("headrace")) / "completion" / safe
