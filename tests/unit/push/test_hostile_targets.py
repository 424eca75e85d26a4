"""X22: a table of addresses and spellings that a webhook may not reach, and a few that it may."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.push.addresses import address_problem, parse_networks
from headrace.push.target import BadTarget, TargetRules, parse_target

HOSTILE_ADDRESSES = [
    # IPv4: this network, loopback, private, shared, link-local and metadata, protocols, documentation, benchmarks
    "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255",
    "192.168.0.1", "192.168.255.255", "100.64.0.1", "100.127.255.255", "100.100.100.200", "169.254.0.1",
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
    # multicast, reserved, broadcast
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    # IPv6 proper
    "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "ff02::1", "100::1",
    "2001:db8::1", "3fff::1", "2001::1", "2001:10::1", "5f00::1", "4000::1",
    # IPv4 inside IPv6: mapped, compatible, NAT64 (well known and local), 6to4, Teredo, ISATAP
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::7f00:1",
    "::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::192.168.1.1",
    "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2600::5efe:127.0.0.1", "2600::200:5efe:10.0.0.1",
]  # fmt: skip

HOSTILE_URLS = [
    # another notation of 127.0.0.1 or 169.254.169.254: decimal, octal, hexadecimal, short, too long, mixed
    "https://2130706433/", "https://017700000001/", "https://0x7f000001/", "https://0x7f.1/", "https://127.1/",
    "https://127.0.1/", "https://0177.0.0.1/", "https://0x7f.0x0.0x0.0x1/", "https://127.0.0.1.1/",
    "https://2852039166/", "https://0xa9fea9fe/", "https://169.254.43518/", "https://425.510.425.510/",
    "https://00000127.0.0.1/", "https://127.000.000.001/", "https://1.2.3.256/", "https://4294967297/",
    # names that mean this machine or this network
    "https://localhost/", "https://localhost./", "https://LOCALHOST/", "https://a.localhost/", "https://printer.local/",
    "https://metadata.google.internal/", "https://metadata.google.internal./", "https://host.docker.internal/",
    # literals in brackets
    "https://[::1]/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/",
    "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[::1", "https://::1/",
    # who is the host? user names, backslashes, fragments, spaces, control characters
    "https://example.com@127.0.0.1/", "https://user:pass@example.com/", "https://127.0.0.1#@example.com/",
    "https://example.com\\@127.0.0.1/", "https://127.0.0.1\\.example.com/", "https:\\\\127.0.0.1\\", "https:///127.0.0.1/",
    "https://example.com /", "https://exam\tple.com/", "https://example.com/\r\nHost: a", "https://example.com\n.evil/",
    "https://example.com%00.evil/", "https://%31%32%37.0.0.1/", "//127.0.0.1/", "127.0.0.1", "",
    # letters and digits that look like others, and dots that are none
    "https://①②⑦.⓪.⓪.①/", "https://１２７.０.０.１/", "https://127。0。0。1/", "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "https://exämple.com/",
    "https://٢١٣٠٧٠٦٤٣٣/",
    # other protocols
    "http://example.com/", "ftp://example.com/", "file:///etc/passwd", "gopher://127.0.0.1:9092/", "HTTPS://example.com/",
    "javascript:alert(1)", "unix:///var/run/docker.sock",
    # ports: databases, etcd, this broker, nothing
    "https://example.com:22/", "https://example.com:2379/", "https://example.com:2380/", "https://example.com:9092/",
    "https://example.com:9324/", "https://example.com:6379/", "https://example.com:0/", "https://example.com:65536/",
    "https://example.com:99999/", "https://example.com:-1/", "https://example.com:4 43/", "https://example.com:४४३/",
    # no host names
    "https://-a.example/", "https://a..example/", "https://.example/", "https://exa_mple.com/", "https://" + "a" * 64 + ".com/",
    "https://" + "a." * 130 + "com/", "https://example.com/" + "x" * 3000,
]  # fmt: skip


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(set(HOSTILE_ADDRESSES)) >= 60 and len(set(HOSTILE_URLS)) >= 60


@pytest.mark.parametrize("address", HOSTILE_ADDRESSES)
def test_x22_hostile_addresses_are_refused(address: str) -> None:
    assert address_problem(address) is not None


@pytest.mark.parametrize("address", [one for one in HOSTILE_ADDRESSES if "%" not in one])
def test_x22_hostile_addresses_are_refused_as_urls(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(BadTarget):
        parse_target(f"https://{host}/hook", TargetRules())


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_x22_hostile_urls_are_refused(url: str) -> None:
    with pytest.raises(BadTarget):
        parse_target(url, TargetRules(own_ports=frozenset({9092, 9324})))


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_allowing_http_and_any_port_lets_only_those_through(url: str) -> None:
    rules = TargetRules(allow_http=True, ports=None, own_ports=frozenset({9092, 9324}))
    fine = ("http://example.com/", "https://example.com:22/", "https://example.com:6379/")
    if url in fine:
        parse_target(url, rules)
    else:
        with pytest.raises(BadTarget):
            parse_target(url, rules)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1"],
)
def test_public_addresses_pass(address: str) -> None:
    assert address_problem(address) is None


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://example.com", "example.com", 443, "/"),
        ("https://Example.COM./a?b=c&d=%20", "example.com", 443, "/a?b=c&d=%20"),
        ("https://xn--exmple-cua.com:8443/x", "xn--exmple-cua.com", 8443, "/x"),
        ("https://8.8.8.8/x", "8.8.8.8", 443, "/x"),
        ("https://[2606:4700:4700::1111]/x", "2606:4700:4700::1111", 443, "/x"),
    ],
)
def test_ordinary_urls_pass(url: str, host: str, port: int, path: str) -> None:
    target = parse_target(url, TargetRules())
    assert (target.host, target.port, target.path) == (host, port, path)
    assert parse_target(target.url, TargetRules()) == target


def test_private_targets_only_by_explicit_list() -> None:
    rules = TargetRules(allow_http=True, networks=parse_networks("127.0.0.0/8, ::1, 10.1.0.0/16"), ports=None)
    for url in ("http://127.0.0.1:8000/", "http://localhost:8000/", "http://[::1]:8000/", "http://10.1.2.3/"):
        parse_target(url, rules)
    for url in (
        "http://10.2.0.1/",
        "http://169.254.169.254/",
        "http://192.168.0.1/",
        "http://127.0.0.1:2379/",
    ):
        with pytest.raises(BadTarget):
            parse_target(url, rules)
    # The list is about where packets go, however the address is written; a spelling that is no address stays none.
    assert address_problem("::ffff:127.0.0.1", rules.networks) is None
    assert address_problem("64:ff9b::10.2.0.1", rules.networks) is not None
    with pytest.raises(BadTarget):
        parse_target("http://2130706433/", rules)


NOT_PUBLIC = st.one_of(
    *(
        st.ip_addresses(v=4, network=network)
        for network in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "224.0.0.0/4")
    )
)  # fmt: skip


@given(NOT_PUBLIC, st.sampled_from([0xFFFF << 32, 0, 0x64FF9B << 96]))
def test_x22_wrapping_hides_nothing(inner: IPv4Address, prefix: int) -> None:
    assert address_problem(str(inner)) is not None
    assert address_problem(str(IPv6Address(prefix | int(inner)))) is not None
    assert address_problem(str(IPv6Address((0x2002 << 112) | (int(inner) << 80)))) is not None


@given(st.text(max_size=80))
def test_any_text_is_a_target_or_a_refusal(text: str) -> None:
    for url in (text, f"https://{text}", f"https://{text}/"):
        try:
            target = parse_target(url, TargetRules())
        except BadTarget:
            continue
        assert target.host.isascii() and "@" not in target.host
        if target.literal:
            assert address_problem(target.host) is None
