"""Command: names that exist on the broker, for the shell's completion: within 300 ms or not at all, and cached."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

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


def _of(parameter: str, path: str, field: str) -> Completer:
    """What belongs to a thing that was named before it on the line: `{}` in the path."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        owner = ctx.params.get(parameter)
        if not owner:
            return []
        return _over_http(f"{path}-{owner}", path.format(quote(owner, safe="")), field)(
            ctx, param, incomplete
        )

    return complete


def _plain(what: str, path: str) -> Completer:
    """A list of names and nothing around it."""

    def question(profile: Profile) -> list[str]:
        from headrace.cli.http_link import HttpLink

        return list(HttpLink(profile).ask("GET", path))

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
complete_subjects = _plain("subjects", "/schemas/subjects")
complete_tenants = _over_http("tenants", "/api/v1/security/tenants")
complete_tokens = _over_http("tokens", "/api/v1/security/tokens", "id")
complete_keys = _over_http("keys", "/api/v1/security/keys", "id")
complete_deliveries = _of("name", "/api/v1/webhooks/{}/deliveries", "id")
complete_waiting = _of("queue", "/api/v1/queues/{}/scheduled", "message_id")
_crons = _over_http("schedules", "/api/v1/schedules")


def complete_schedules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """With --queue they are messages that wait there."""
    return (complete_waiting if ctx.params.get("queue") else _crons)(ctx, param, incomplete)


def complete_moves(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Those that can still be stopped, of every queue of dead letters."""

    def question(profile: Profile) -> list[str]:
        from headrace.cli.http_link import HttpLink

        link = HttpLink(profile)
        dead = [item["name"] for item in link.all_items("/api/v1/queues") if item["dead_letter_of"]]
        moves = [
            move for name in dead for move in link.all_items(f"/api/v1/queues/{quote(name, safe='')}/moves")
        ]
        return [move["id"] for move in moves if move["status"] == "running"]

    return _starting(incomplete, "moves", ctx, question)


def complete_operations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """No broker is asked; several are written with commas."""
    from headrace.cli.acl_view import OPERATIONS

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in OPERATIONS if name.startswith(begun.lower())]


def complete_resources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Of the kind that was named before: a topic or a group. Transactional ids are listed by nobody."""
    kinds = {"topic": complete_topics, "group": complete_groups}
    complete = kinds.get(str(ctx.params.get("kind")))
    return complete(ctx, param, incomplete) if complete else []


def complete_broker_configs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """No broker is asked: all have the same."""
    from headrace.cluster.broker_configs import BROKER_CONFIGS

    return [name for name in BROKER_CONFIGS if name.startswith(incomplete)]


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
