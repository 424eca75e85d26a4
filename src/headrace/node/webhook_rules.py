"""Kernel of the node: the settings about webhooks as rules (X22). Raises HeadraceError for what makes no sense."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.units import is_digits
from headrace.node.settings import Settings
from headrace.push.addresses import parse_networks
from headrace.push.target import TargetRules

ANY = "any"


def webhook_rules(settings: Settings) -> TargetRules:
    """`own_ports` are added when they are bound."""
    try:
        networks = parse_networks(settings.webhook_networks)
    except ValueError as problem:
        raise HeadraceError(ErrorKind.INVALID_CONFIG, f"webhook_networks: {problem}") from None
    return TargetRules(settings.webhook_allow_http, networks, _ports(settings.webhook_ports))


def _ports(text: str) -> frozenset[int] | None:
    if text.strip() == ANY:
        return None
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not all(is_digits(number) and 0 < int(number) < 65536 for number in numbers):
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"webhook_ports: {text!r} is not a list of ports such as 443,8443, and not any",
        )
    return frozenset(map(int, numbers))
