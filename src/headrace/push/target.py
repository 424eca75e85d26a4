"""Codec: the URL of a webhook, read strictly: one spelling, no tricks (X22).

A lenient parser and the resolver may disagree about where `http://2130706433/` or `http://a@b` goes; what this one does not
understand in the plain form is refused. Names are judged again, by their addresses, each time something is sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from headrace.push.addresses import Network, address_problem

MAX_URL_CHARS = 2_048
_URL = re.compile(
    r"(?P<scheme>[a-z]++)://(?P<host>[A-Za-z0-9.-]++|\[[0-9A-Fa-f:.]++\])(?::(?P<port>[0-9]{1,5}))?(?P<path>/[\x21-\x7e]*+)?",
    re.ASCII,
)
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?", re.ASCII)
_NUMBER_LIKE = re.compile(r"[0-9]++|0[xX][0-9A-Fa-f]*+", re.ASCII)
_LOCAL_SUFFIXES = ("localhost", "local", "internal", "localdomain", "home.arpa", "lan", "intranet")
NEVER_PORTS = frozenset({2379, 2380})
"""etcd's: whoever can write there owns the cluster."""


class BadTarget(ValueError):
    """Why a URL is refused; the text is for the person who gave it."""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What the operator allows beyond https to public addresses on the usual ports."""

    allow_http: bool = False
    networks: tuple[Network, ...] = ()
    ports: frozenset[int] | None = frozenset({443, 8443})
    """None: any."""
    own_ports: frozenset[int] = frozenset()
    """Of this broker: it does not call itself."""

    def address_problem(self, address: str) -> str | None:
        return address_problem(address, self.networks)


class Target(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    literal: bool
    """`host` is an address, and was judged."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == (443 if self.scheme == "https" else 80)
        return f"{self.scheme}://{host}{'' if usual else f':{self.port}'}{self.path}"


def parse_target(url: str, rules: TargetRules) -> Target:
    """Raises BadTarget."""
    if len(url) > MAX_URL_CHARS:
        raise BadTarget(f"the URL is longer than {MAX_URL_CHARS} characters")
    match = _URL.fullmatch(url)
    if match is None:
        raise BadTarget(
            "the URL must look like https://host/path, in ASCII, without a user name, spaces or a backslash"
        )
    scheme, path = match["scheme"], match["path"] or "/"
    if scheme not in ("https", "http"):
        raise BadTarget(f"{scheme} is not a scheme a webhook can have")
    if scheme == "http" and not rules.allow_http:
        raise BadTarget("a webhook needs https; this broker does not allow http")
    if "#" in path or "\\" in path:
        raise BadTarget("the path of the URL has a fragment or a backslash")
    port = int(match["port"] or (443 if scheme == "https" else 80))
    _check_port(port, rules)
    host, literal = _host(match["host"], rules)
    return Target(scheme, host, port, path, literal)


def _check_port(port: int, rules: TargetRules) -> None:
    if not 1 <= port <= 65535:
        raise BadTarget(f"{port} is not a port")
    if port in NEVER_PORTS or port in rules.own_ports:
        raise BadTarget(f"port {port} belongs to the cluster itself")
    usual_http = port == 80 and rules.allow_http
    if rules.ports is not None and port not in rules.ports and not usual_http:
        listed = ", ".join(map(str, sorted(rules.ports)))
        raise BadTarget(f"port {port} is not one a webhook may use; there are: {listed}")


def _host(text: str, rules: TargetRules) -> tuple[str, bool]:
    if text.startswith("["):
        return _literal(text[1:-1], rules, is_v6=True), True
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadTarget(f"{text} is not a host name")
    # inet_aton reads 127.1, 0x7f.1 and 2130706433 as addresses; here an address has exactly four decimal numbers.
    if _NUMBER_LIKE.fullmatch(labels[-1]):
        return _literal(name, rules, is_v6=False), True
    if not rules.networks:
        for suffix in _LOCAL_SUFFIXES:
            if name == suffix or name.endswith("." + suffix):
                raise BadTarget(f"{name} is a name of a local network")
    return name, False


def _literal(text: str, rules: TargetRules, *, is_v6: bool) -> str:
    try:
        address = str(IPv6Address(text) if is_v6 else IPv4Address(text))
    except (AddressValueError, ValueError):
        raise BadTarget(f"{text} is not an address in its plain form") from None
    problem = rules.address_problem(address)
    if problem is not None:
        raise BadTarget(f"the address {problem}")
    return address
