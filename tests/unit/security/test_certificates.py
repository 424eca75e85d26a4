"""A56, A57: certificates of a cluster's own, and the files that one command makes, again and again."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from headrace.security.certificates import LEAF_DAYS, Pair, issue, make_authority, problems, show
from headrace.security.founding import SecureFiles, initialise

DAY_MS = 86_400_000


def pair(directory: Path, name: str) -> Pair:
    return Pair(directory / f"{name}.pem", directory / f"{name}.key")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a57_a_certificate_has_its_names_and_its_time(tmp_path: Path) -> None:
    authority, leaf = pair(tmp_path, "ca"), pair(tmp_path, "leaf")
    make_authority(authority, "an authority")
    issue(authority, leaf, "leaf", ["localhost", "::1", "10.0.0.1"], ["headrace://c/broker/1"])
    shown = show(leaf.certificate)
    assert shown.names == ("localhost", "::1", "10.0.0.1", "headrace://c/broker/1")
    assert (
        shown.issuer == "CN=an authority"
        and not shown.is_authority
        and show(authority.certificate).is_authority
    )
    assert LEAF_DAYS * DAY_MS <= shown.not_after_ms - shown.not_before_ms <= (LEAF_DAYS + 1) * DAY_MS
    for key in (authority.key, leaf.key):
        assert stat.S_IMODE(os.stat(key).st_mode) == 0o600
    assert problems(leaf, authority.certificate, ["localhost"], now_ms()) == []


def test_f52_a_host_may_have_a_long_name(tmp_path: Path) -> None:
    """A subject has room for 64 bytes: one that was longer made `cert issue` say that the authority can't sign."""
    authority, leaf = pair(tmp_path, "ca"), pair(tmp_path, "leaf")
    make_authority(authority, "an authority")
    host = f"broker-1.{'a-cluster-with-a-long-name.' * 3}example"
    issue(authority, leaf, host, [host])
    assert show(leaf.certificate).names == (host,) and show(leaf.certificate).subject == ""
    assert problems(leaf, authority.certificate, [host], now_ms()) == []


def test_a57_what_is_wrong_with_a_certificate_is_said(tmp_path: Path) -> None:
    authority, other, leaf = pair(tmp_path, "ca"), pair(tmp_path, "other"), pair(tmp_path, "leaf")
    make_authority(authority, "an authority")
    make_authority(other, "another")
    issue(authority, leaf, "leaf", ["localhost"])
    after_ms = show(leaf.certificate).not_after_ms
    wrong = problems(leaf._replace(key=other.key), other.certificate, ["elsewhere"], after_ms)
    assert [words.split(" ", 1)[1].split(" ")[0] for words in wrong] == ["is", "has", "is", "is"]
    assert "not valid yet" in problems(leaf, None, [], show(leaf.certificate).not_before_ms - 1)[0]


def test_a56_init_makes_what_is_missing_and_leaves_the_rest(tmp_path: Path) -> None:
    files = SecureFiles(tmp_path / "security")
    made = initialise(files, ["a.example"], [1, 2], now_ms())
    assert [path.name for path in made] == [
        "ca.pem", "broker-1.pem", "broker-2.pem", "admin.password", "secrets.key", "admin.aws",
    ]  # fmt: skip
    for secret in (files.password, files.secrets_key, files.access_key):
        assert stat.S_IMODE(os.stat(secret).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(files.directory).st_mode) == 0o700
    before = {path.name: path.read_bytes() for path in files.directory.iterdir()}
    assert initialise(files, ["a.example"], [1, 2], now_ms()) == []
    assert {path.name: path.read_bytes() for path in files.directory.iterdir()} == before
    assert [path.name for path in initialise(files, ["b.example"], [1, 3], now_ms())] == [
        "broker-1.pem",
        "broker-3.pem",
    ]
    assert "b.example" in show(files.broker(1).certificate).names
    assert problems(files.broker(3), files.authority.certificate, ["b.example", "localhost"], now_ms()) == []
