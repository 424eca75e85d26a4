"""Machine: which network addresses a webhook may reach (X22). Pure: an address in, a reason to refuse out.

`ipaddress.is_global` is not enough: depending on the Python version it is true for NAT64, 6to4 and IPv4-compatible
forms of loopback, and for multicast. So addresses are unwrapped first, IPv4 is judged by an explicit list, and of IPv6 only the
range that is given out for the public (2000::/3) can pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_REFUSED_V4 = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "shared address space (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's metadata service"),
        ("169.254.0.0/16", "link-local, where clouds keep their metadata service"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private network"),
        ("198.18.0.0/15", "reserved for benchmarks"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_REFUSED_V6 = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("2001::/23", "reserved for protocols (Teredo, ORCHID)"),
        ("2001:db8::/32", "reserved for documentation"),
        ("3fff::/20", "reserved for documentation"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_LOW_32 = 0xFFFF_FFFF
_MAX_WRAPPERS = 4


def parse_networks(text: str) -> tuple[Network, ...]:
    """`127.0.0.0/8, ::1`. Raises ValueError."""
    return tuple(ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())


def address_problem(text: str, allowed: Sequence[Network] = ()) -> str | None:
    """Why nothing may be sent to this address; None when it may. `allowed` is the operator's explicit list."""
    if "%" in text:
        return f"{text} is bound to one interface"
    try:
        address = ip_address(text)
    except (ValueError, AddressValueError):
        return f"{text} is not an address"
    for layer in _layers(address):
        if _within(layer, allowed):
            return None
    innermost = address
    for layer in _layers(address):
        innermost = layer
    what = _refused_v4(innermost) if isinstance(innermost, IPv4Address) else _refused_v6(innermost)
    if what is None:
        return None
    shown = text if innermost == address else f"{text} ({innermost})"
    return f"{shown} is {what}"


def _layers(address: Address) -> Iterable[Address]:
    """The address, and what is wrapped in it: an IPv4 address inside an IPv6 one is where packets really go."""
    yield address
    for _ in range(_MAX_WRAPPERS):
        inner = _unwrapped(address)
        if inner is None:
            return
        address = inner
        yield address


def _unwrapped(address: Address) -> Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    value = int(address)
    if address in _NAT64:
        return IPv4Address(value & _LOW_32)
    if address in _COMPATIBLE and value > 1:
        return IPv4Address(value & _LOW_32)
    if value >> 32 & _LOW_32 in _ISATAP:
        return IPv4Address(value & _LOW_32)
    return None


def _refused_v4(address: IPv4Address) -> str | None:
    for network, what in _REFUSED_V4:
        if address in network:
            return what
    return None


def _refused_v6(address: IPv6Address) -> str | None:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_private or address.is_site_local:
        return "a private network"
    if address not in _PUBLIC_V6:
        return "not a public address"
    for network, what in _REFUSED_V6:
        if address in network:
            return what
    return None


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(network.version == address.version and address in network for network in networks)
