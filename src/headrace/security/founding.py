"""Adapter: the files of a secured cluster (A56): its authority, a certificate for each broker, the first administrator's password.

Made by one command and again without harm: what is there stays, unless a certificate is about to end or lacks a name.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.security.certificates import RENEW_DAYS, Pair, issue, make_authority, show

ADMIN = "admin"
LOCAL = ("localhost", "127.0.0.1", "::1")
DAY_MS = 86_400_000


class SecureFiles(NamedTuple):
    directory: Path

    @property
    def authority(self) -> Pair:
        return Pair(self.directory / "ca.pem", self.directory / "ca.key")

    @property
    def password(self) -> Path:
        """Of the first administrator: one line."""
        return self.directory / f"{ADMIN}.password"

    def broker(self, node_id: int) -> Pair:
        return Pair(self.directory / f"broker-{node_id}.pem", self.directory / f"broker-{node_id}.key")


def initialise(files: SecureFiles, hosts: Sequence[str], node_ids: Iterable[int], wall_ms: int) -> list[Path]:
    """What was made."""
    made: list[Path] = []
    files.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not files.authority.certificate.exists():
        make_authority(files.authority, "headrace cluster authority")
        made.append(files.authority.certificate)
    names = list(dict.fromkeys((*hosts, *LOCAL, socket.gethostname())))
    for node_id in node_ids:
        pair = files.broker(node_id)
        if not _is_good(pair, names, wall_ms):
            issue(files.authority, pair, f"headrace broker {node_id}", names)
            made.append(pair.certificate)
    if not files.password.exists():
        with open(os.open(files.password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(18) + "\n")
        made.append(files.password)
    return made


def _is_good(pair: Pair, names: Sequence[str], wall_ms: int) -> bool:
    if not pair.certificate.exists() or not pair.key.exists():
        return False
    shown = show(pair.certificate)
    return shown.not_after_ms > wall_ms + RENEW_DAYS * DAY_MS and set(names) <= set(shown.names)
