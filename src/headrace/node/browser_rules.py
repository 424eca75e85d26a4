"""Kernel of the node: the settings about web pages as a policy (A6, W17). Raises HeadraceError for what makes no sense."""

from __future__ import annotations

from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.browsers import BrowserPolicy
from headrace.node.settings import Settings


def browser_policy(settings: Settings, image: ClusterImage) -> BrowserPolicy:
    """Names of other brokers count, too: behind one address (a port forward, a balancer) a client may ask us by theirs."""

    def peers() -> list[str]:
        return [
            name
            for broker in image.live_brokers()
            for name in (broker.registration.http_host, broker.registration.host)
        ]

    try:
        return BrowserPolicy(
            (settings.host, settings.advertised_host, *settings.allowed_hosts.split(",")),
            settings.allowed_origins.split(","),
            peers,
        )
    except ValueError as problem:
        raise HeadraceError(ErrorKind.INVALID_CONFIG, str(problem)) from None
