"""Adapter: the files of a secured cluster (A56): its authority, a certificate for each broker, the first administrator's password,
the key under which secrets are sealed (A31).

Made by one command and again without harm: what is there stays, unless a certificate is about to end or lacks a name.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.net.tls import broker_uri
from headrace.security.access_keys import credentials_text, make_access_key
from headrace.security.certificates import RENEW_DAYS, Pair, issue, make_authority, show
from headrace.security.sealing import KEY_BYTES

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

    @property
    def access_key(self) -> Path:
        """Of the first administrator, as ~/.aws/credentials has them."""
        return self.directory / f"{ADMIN}.aws"

    @property
    def secrets_key(self) -> Path:
        """Every broker has it, and the coordinator never."""
        return self.directory / "secrets.key"

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
        uri = broker_uri(node_id)
        if not _is_good(pair, [*names, uri], wall_ms):
            issue(files.authority, pair, f"headrace broker {node_id}", names, [uri])
            made.append(pair.certificate)
    for path, content in (
        (files.password, secrets.token_urlsafe(18)),
        (files.secrets_key, secrets.token_hex(KEY_BYTES)),
        (files.access_key, credentials_text(*make_access_key(secrets.token_bytes))),
    ):
        if not path.exists():
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(content + "\n")
            made.append(path)
    return made


def _is_good(pair: Pair, names: Sequence[str], wall_ms: int) -> bool:
    if not pair.certificate.exists() or not pair.key.exists():
        return False
    shown = show(pair.certificate)
    return shown.not_after_ms > wall_ms + RENEW_DAYS * DAY_MS and set(names) <= set(shown.names)
