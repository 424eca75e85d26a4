"""Adapter: who a program is, as librdkafka wants it (A28, A29)."""

from __future__ import annotations

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.net.secret_files import read_secret

MECHANISM = "SCRAM-SHA-512"


def login(user: str, password_file: str, tls_ca: str) -> dict[str, str]:
    """Raises HeadraceError."""
    if bool(user) != bool(password_file):
        raise HeadraceError(ErrorKind.INVALID_PARAMETER, "user and password_file go together")
    found: dict[str, str] = {"ssl.ca.location": tls_ca} if tls_ca else {}
    if user:
        found["security.protocol"] = "SASL_SSL" if tls_ca else "SASL_PLAINTEXT"
        found |= {
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": read_secret(password_file),
        }
    elif tls_ca:
        found["security.protocol"] = "SSL"
    return found
