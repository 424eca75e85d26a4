"""Codec: access keys for SigV4: how they are made, and those in a file in the form of ~/.aws/credentials, which people already have."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from configparser import ConfigParser, Error
from pathlib import Path

from headrace.core.errors import ErrorKind, HeadraceError

_PREFIX = "HRAK"
_ID_BYTES = 10
_SECRET_BYTES = 30


def make_access_key(random_bytes: Callable[[int], bytes]) -> tuple[str, str]:
    """Id and secret, as long as those of AWS: SDKs and scanners know them."""
    key_id = _PREFIX + base64.b32encode(random_bytes(_ID_BYTES)).decode()
    return key_id, base64.urlsafe_b64encode(random_bytes(_SECRET_BYTES)).decode()


def credentials_text(key_id: str, secret: str, profile: str = "default") -> str:
    return f"[{profile}]\naws_access_key_id = {key_id}\naws_secret_access_key = {secret}"


def read_access_keys(path: str) -> dict[str, str]:
    """Access key id -> secret, of every profile. Raises INVALID_CONFIG for a file that has none, or that others may read."""
    file = Path(path).expanduser()
    parser = ConfigParser(interpolation=None)
    try:
        with file.open() as opened:
            need_private(path, os.fstat(opened.fileno()))
            parser.read_string(opened.read())
    except (OSError, UnicodeDecodeError, Error) as problem:
        # Its name and no more: the text of a parser's error is a line of the file.
        words = (
            problem.strerror.lower()
            if isinstance(problem, OSError) and problem.strerror
            else type(problem).__name__
        )
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG, f"{path} is not a credentials file: {words}", "check --sqs-credentials"
        ) from None
    keys = {}
    for profile in parser.sections():
        key, secret = (
            parser[profile].get(name, "") for name in ("aws_access_key_id", "aws_secret_access_key")
        )
        if key and secret:
            keys[key] = secret
    if not keys:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"{path} has no aws_access_key_id with an aws_secret_access_key",
            "check --sqs-credentials",
        )
    return keys


def need_private(path: str, status: os.stat_result) -> None:
    """Its owner's alone (A29); or root's, read by a group of ours, as Kubernetes mounts secrets for other users."""
    others = stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
    if others and not (status.st_uid == 0 and os.geteuid() != 0 and others == stat.S_IRGRP):
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"{path} holds secrets and can be read by others (mode {stat.S_IMODE(status.st_mode):04o})",
            f"chmod 600 {path}",
        )
