"""Driver: TLS contexts (A58), and certificates that are looked at again while the broker runs (A59).

A new pair of files is tried out aside: the key fits the certificate, it is valid today. Only then is it used for connections that come from
now on; those that are open live on. A bad pair is told loudly and the old one stays.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
HANDSHAKE_S = 10.0
_is_broker = re.compile(r"headrace://cluster/broker/([0-9]{1,9})").fullmatch


class TlsFiles(NamedTuple):
    certificate: str
    """PEM: the certificate and those between it and the authority."""
    key: str
    authority: str = ""
    """PEM: whom we trust when we call others; empty: the system's."""


class BadCertificate(Exception):
    """The text says which file, and what is wrong with it."""


@dataclass(slots=True)
class PeerTls:
    """How brokers of a cluster call each other: whoever calls looks here, because another authority may have come."""

    context: ssl.SSLContext
    by_certificate: bool
    """The certificate of a broker says which one it is, and nothing that another one claims is believed (A49). Not while brokers
    move to TLS one by one: those that have not call without."""


def broker_uri(broker_id: int) -> str:
    """In the certificate of a broker. Whose cluster it is, its authority says."""
    return f"headrace://cluster/broker/{broker_id}"


def shown_certificate(transport: BaseTransport) -> Mapping[str, Any]:
    """What was shown at the other end of a connection, as our authority signed it; empty: nothing."""
    return transport.get_extra_info("peercert") or {}


def certified_broker(transport: BaseTransport) -> int:
    """Which broker the certificate at the other end of a connection is of, as our authority signed it; -1: of none."""
    for kind, name in shown_certificate(transport).get("subjectAltName", ()):
        found = _is_broker(name) if kind == "URI" else None
        if found is not None:
            return int(found.group(1))
    return -1


def server_context(files: TlsFiles, *, asks: bool = False) -> ssl.SSLContext:
    """`asks`: who connects may show a certificate of our authority. Raises BadCertificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as problem:
        words = (problem.strerror or str(problem)).lower() if isinstance(problem, OSError) else str(problem)
        raise BadCertificate(f"{files.certificate} with {files.key}: {words}") from None
    if asks:
        _trust(context, files.authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _trust(context: ssl.SSLContext, authority: str) -> None:
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as problem:
        raise BadCertificate(f"{authority}: {problem}") from None


def client_context(authority: str) -> ssl.SSLContext:
    """Of who calls: names and certificates are checked. Raises BadCertificate."""
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except (OSError, ssl.SSLError) as problem:
        raise BadCertificate(f"{authority}: {problem}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Certificates:
    """The context for connections that come now."""

    def __init__(
        self,
        files: TlsFiles,
        expiry_ms: Callable[[str], int],
        now_ms: Callable[[], int],
        *,
        asks: bool = False,
    ) -> None:
        """`expiry_ms`: of the certificate in a file. Raises BadCertificate."""
        self._files = files
        self._asks = asks
        self._expiry_ms = expiry_ms
        self._now_ms = now_ms
        self._seen = self._stamp()
        self.context, self.expires_ms = self._try()

    def expires_in_s(self) -> float:
        return (self.expires_ms - self._now_ms()) / 1000

    def look(self) -> bool:
        """Take other files if there are; True when they are used from now on."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.context, self.expires_ms = self._try()
        except BadCertificate as problem:
            log.error("the new certificate is not used, the old one stays: %s", problem)
            return False
        log.warning("new certificates are used for connections that come from now on")
        return True

    def _try(self) -> tuple[ssl.SSLContext, int]:
        context = server_context(self._files, asks=self._asks)
        expires_ms = self._expiry_ms(self._files.certificate)
        if expires_ms <= self._now_ms():
            raise BadCertificate(f"{self._files.certificate} has expired")
        return context, expires_ms

    def _stamp(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in filter(None, self._files):
            try:
                status = os.stat(path)
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return tuple(found)
