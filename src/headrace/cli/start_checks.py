"""Command: why a broker can't start here, found before anything is touched where possible, and in words."""

from __future__ import annotations

import errno
import socket

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.processes import command_line, listener
from headrace.core.errors import HeadraceError
from headrace.node.settings import Settings


def need_safe_bind(settings: Settings) -> None:
    """X1: open to the network and to everybody only when somebody has said so."""
    if settings.is_loopback or settings.insecure or settings.secure:
        return
    raise Failure(
        Exit.DENIED,
        f"refusing to listen on {settings.host}: everybody who can reach it could read and write everything",
        "listen on 127.0.0.1 (the default), or --secure, or say --insecure if the network is yours",
        code="INSECURE_BIND",
    )


def need_free_ports(settings: Settings) -> None:
    """Before the data directory is touched: a port that is taken must not cost it its clean-shutdown marker."""
    for flag, port in (
        ("--kafka-port", settings.kafka_port),
        ("--http-port", settings.http_port),
        ("--schema-registry-port", settings.schema_registry_port),
    ):
        if port == 0:
            continue
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.host, port))
                probe.listen(1)
            except OSError as problem:
                raise bind_failure(problem, settings.host, port, flag) from None


def bind_failure(problem: OSError, host: str, port: int, flag: str) -> Failure:
    if problem.errno == errno.EADDRINUSE:
        return Failure(
            Exit.UNREACHABLE,
            f"port {port} is in use{_by_whom(port)}",
            f"stop that one, or take any that is free:  headrace serve {flag} 0",
            code="PORT_IN_USE",
        )
    if problem.errno == errno.EACCES:
        return Failure(
            Exit.DENIED, f"port {port} needs more rights than you have", f"{flag} with a port above 1023"
        )
    words = (problem.strerror or str(problem)).lower()
    return Failure(Exit.UNREACHABLE, f"cannot listen on {host}:{port}: {words}", "check --host")


def _by_whom(port: int) -> str:
    pid = listener(port)
    if pid is None:
        return ""
    what = command_line(pid) or ""
    shown = "another headrace" if "headrace" in what else what[:80]
    return f" by process {pid}" + (f" ({shown})" if shown else "")


def start_failure(problem: Exception, settings: Settings) -> Failure | None:
    """A known reason for which a broker can't start, or None when it is a bug."""
    from headrace.coordinator.port import CoordinatorError
    from headrace.node.data_directory import DirectoryRefused

    if isinstance(problem, DirectoryRefused):
        return Failure(Exit.CONFLICT, problem.detail, problem.hint, code="DATA_DIRECTORY_REFUSED")
    if isinstance(problem, CoordinatorError):
        where = settings.coordinator or "the embedded coordinator"
        return Failure(
            Exit.UNREACHABLE, f"{where} does not answer: {problem}", "check --coordinator; headrace doctor"
        )
    if isinstance(problem, HeadraceError):
        return failure_of(problem)
    if isinstance(problem, TimeoutError):
        return Failure(
            Exit.TIMEOUT,
            "the broker did not become ready in time",
            "run again with -v to see what it waits for",
        )
    if isinstance(problem, OSError) and problem.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return bind_failure(problem, settings.host, settings.kafka_port, "--kafka-port")
    if isinstance(problem, OSError) and problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Failure(
            Exit.DENIED,
            f"{problem.filename or settings.directory()}: {(problem.strerror or '').lower()}",
            "choose a directory of your own with --data-dir",
        )
    if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
        return Failure(
            Exit.FAILED, f"the disk under {settings.directory()} is full", "make room, or --data-dir"
        )
    if isinstance(problem, ValueError) and settings.coordinator:
        return Failure(Exit.USAGE, f"--coordinator: {problem}")
    return None
