"""Adapter: from a URL to a coordinator.

    memory:                                   this process only, gone when it ends
    sqlite:///var/lib/headrace/meta.db        the broker processes of one host
    etcd://h1:2379,h2:2379,h3:2379/prod       a cluster; keys live under /prod/ (default /headrace/)
    etcds://h1,h2/prod?ca=ca.pem&cert=c.pem&key=k.pem&user=headrace&password_file=secret

`etcds` is etcd over TLS; `cert` and `key` are for mutual TLS. Passwords come from a file or from the caller, never from
the URL, which ends up in process lists and logs (X25). Adapters are imported when they are asked for: start-up time.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headrace.coordinator.port import Coordinator
from headrace.core.ports import Clock

if TYPE_CHECKING:
    from headrace.coordinator.etcd import EtcdSettings
    from headrace.coordinator.sqlite import RunBlocking
    from headrace.net.h1_client import Origin

log = logging.getLogger(__name__)

DEFAULT_ETCD_PORT = 2379
DEFAULT_NAMESPACE = "/headrace/"

_ETCD_PARAMETERS = {"user", "password_file", "deadline_ms"}
_TLS_PARAMETERS = {"ca", "cert", "key"}


async def open_coordinator(
    url: str,
    *,
    clock: Clock,
    run_blocking: RunBlocking,
    token_bytes: Callable[[int], bytes] = secrets.token_bytes,
    password: str | None = None,
    is_own: bool = False,
) -> Coordinator:
    """Raises ValueError for a URL it does not understand, and CoordinatorUnavailable for a file it cannot open.

    An etcd that is away is no error here: the first call will tell. `is_own`: see SqliteCoordinator.open.
    """
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from headrace.coordinator.memory import MemoryCoordinator

        return MemoryCoordinator(clock)
    if scheme == "sqlite":
        from headrace.coordinator.sqlite import SqliteCoordinator

        return await SqliteCoordinator.open(sqlite_path(url), run_blocking, is_own=is_own)
    if scheme in ("etcd", "etcds"):
        from headrace.coordinator.etcd import EtcdCoordinator

        return EtcdCoordinator(etcd_settings(url, password=password), token_bytes=token_bytes)
    raise ValueError(f'"{scheme}:" is not a coordinator; write memory:, sqlite:///path or etcd://host:port')


def sqlite_path(url: str) -> str:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or parts.query or not path.startswith("/") or path.endswith("/"):
        raise ValueError(f'"{url}" is not a coordinator file; write sqlite:///absolute/path/file.db')
    return path


def etcd_settings(url: str, *, password: str | None = None) -> EtcdSettings:
    from headrace.coordinator.etcd import EtcdSettings
    from headrace.coordinator.etcd_calls import Credentials

    parts, hosts = _hosts_apart(url)
    if "@" in hosts:
        raise ValueError("user and password do not belong in the URL; use ?user=…&password_file=… (X25)")
    parameters = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    known = _ETCD_PARAMETERS | (_TLS_PARAMETERS if parts.scheme == "etcds" else set())
    if unknown := sorted(parameters.keys() - known):
        raise ValueError(
            f"unknown coordinator parameter {', '.join(unknown)}; {parts.scheme} knows {sorted(known)}"
        )
    tls = _tls_context(parameters) if parts.scheme == "etcds" else None
    endpoints = _endpoints(url, hosts, tls)
    credentials = None
    if "user" in parameters:
        secret = _read_secret(parameters["password_file"]) if "password_file" in parameters else password
        if secret is None:
            raise ValueError("an etcd user needs a password; use password_file=…")
        credentials = Credentials(parameters["user"], secret)
        if tls is None and not all(_is_loopback(one.host) for one in endpoints):
            log.warning(
                "the etcd password for %s travels in clear text; use etcds:// (X26)", parameters["user"]
            )
    namespace = unquote(parts.path).strip("/")
    return EtcdSettings(
        endpoints=endpoints,
        namespace=f"/{namespace}/" if namespace else DEFAULT_NAMESPACE,
        credentials=credentials,
        deadline_s=int(parameters.get("deadline_ms", "2000")) / 1000,
    )


def _hosts_apart(url: str) -> tuple[SplitResult, str]:
    """The URL without its hosts, and these. Several are no host to urlsplit, and since Python 3.14 it refuses them when one is an IPv6 address."""
    scheme, _, rest = url.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://{rest[len(hosts) :]}"), hosts


def _endpoints(url: str, hosts: str, tls: ssl.SSLContext | None) -> tuple[Origin, ...]:
    from headrace.net.h1_client import Origin

    endpoints = []
    for name in hosts.split(","):
        try:
            one = urlsplit(f"//{name}")
            host, port = one.hostname, one.port
        except ValueError as error:
            raise ValueError(f'"{name}" is not host:port: {error}') from error
        if not host:
            raise ValueError(f'"{url}" names no endpoint; write etcd://host:2379')
        endpoints.append(Origin(host, DEFAULT_ETCD_PORT if port is None else port, tls))
    return tuple(endpoints)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _tls_context(parameters: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=parameters.get("ca"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert" in parameters:
        context.load_cert_chain(parameters["cert"], parameters.get("key"))
    return context


def _read_secret(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise ValueError(f"{path} is readable by others; chmod 600 it (X25)")
        return file.read().rstrip("\r\n")
