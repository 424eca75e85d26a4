"""Codec: access keys for SigV4 from a file in the form of ~/.aws/credentials, which people already have."""

from __future__ import annotations

from configparser import ConfigParser, Error
from pathlib import Path


def read_access_keys(path: str) -> dict[str, str]:
    """Access key id -> secret, of every profile. Raises ValueError for a file that has none."""
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(Path(path).expanduser().read_text())
    except (OSError, UnicodeDecodeError, Error) as problem:
        raise ValueError(f"{path} is not a credentials file: {type(problem).__name__}") from None
    keys = {}
    for profile in parser.sections():
        key, secret = (
            parser[profile].get(name, "") for name in ("aws_access_key_id", "aws_secret_access_key")
        )
        if key and secret:
            keys[key] = secret
    if not keys:
        raise ValueError(f"{path} has no aws_access_key_id with an aws_secret_access_key")
    return keys
