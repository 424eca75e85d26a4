"""Driver: what makes a node a secured one: TLS on both ports, certificates that are looked at again, the first administrator (A34, A53, A59)."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from headrace.broker.runtime import Runtime
from headrace.coordinator.opening import etcd_settings
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.measures import Family, gauge
from headrace.core.principals import USER, Principal
from headrace.net.doorway import Doorway, Factory
from headrace.net.tls import BadCertificate, Certificates, PeerTls, TlsFiles, broker_uri, client_context
from headrace.node.settings import Settings
from headrace.security.access_keys import read_access_keys
from headrace.security.admin import SecurityAdmin
from headrace.security.audit import MOST_CHARS, AuditEvent, AuditTrail
from headrace.security.certificates import expiry_ms, show
from headrace.security.certified import Rule, parse_rules
from headrace.security.denials import Denials, Want
from headrace.security.founding import ADMIN, SecureFiles
from headrace.security.image import SecurityImage
from headrace.security.issuers import Issuers
from headrace.security.jwts import Issuer
from headrace.security.key_ring import KeyRing
from headrace.security.records import Mode, word
from headrace.security.scram import DEFAULT_ITERATIONS, HASHES, SALT_BYTES, record_of, salted_password
from headrace.security.sealing import Sealer

log = logging.getLogger(__name__)

LOOK_S = 30.0
WARN_DAYS = (30, 7, 1)
DAY_S = 86_400


class NodeTls:
    """Certificates of this node, and the ways in and out that use them."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        """Raises INVALID_CONFIG."""
        self._settings = settings
        self._runtime = runtime
        self._warned: set[int] = set()
        files = TlsFiles(settings.tls_cert, settings.tls_key, settings.tls_ca)
        try:
            self._by_certificate = bool(settings.tls_ca) and (
                broker_uri(settings.node_id) in show(Path(settings.tls_cert)).names
            )
            self.certificates = Certificates(
                files,
                expiry_ms,
                runtime.clock.wall_ms,
                asks=self._by_certificate or bool(settings.tls_users),
            )
            self.peers: PeerTls | None = None
            if settings.secure or settings.internal_tls:
                needed = self._by_certificate and not settings.internal_tls_moving
                self.peers = PeerTls(client_context(settings.tls_ca), needed)
                self._show_own()
        except (BadCertificate, OSError, ValueError) as problem:
            raise HeadraceError(
                ErrorKind.INVALID_CONFIG, str(problem), "headrace cert check FILE says what is wrong with it"
            ) from None

    def doorway(self, factory: Factory) -> Doorway:
        return Doorway(factory, lambda: self.certificates.context, self._takes_plain, self._runtime.spawn)

    def _takes_plain(self, host: str) -> bool:
        policy = self._settings.plaintext_policy
        return policy == "accept" or (policy == "loopback" and _is_loopback(host))

    async def watch(self) -> None:
        """Not by a notice of the file system alone: one that is lost would show when the certificate ends."""
        while True:
            self._warn()
            await asyncio.sleep(LOOK_S)
            self.reload()

    def reload(self) -> None:
        if self.certificates.look():
            self._warned.clear()
            self._call_anew()

    def _call_anew(self) -> None:
        """What others are called with from now on: another authority may have come, and one that is gone is not believed any more."""
        if self.peers is not None:
            try:
                self.peers.context = client_context(self._settings.tls_ca)
                self._show_own()
            except (BadCertificate, OSError) as problem:
                log.error("other brokers are called as before: %s", problem)

    def _show_own(self) -> None:
        """To brokers that we call. What was tried out is taken from the same files."""
        if self.peers is not None and self._by_certificate:
            self.peers.context.load_cert_chain(self._settings.tls_cert, self._settings.tls_key)

    def _warn(self) -> None:
        left_s = self.certificates.expires_in_s()
        for days in WARN_DAYS:
            if left_s < days * DAY_S and days not in self._warned:
                self._warned.add(days)
                log.warning("the certificate %s ends in %d hours", self._settings.tls_cert, left_s // 3600)

    def collect(self) -> Iterable[Family]:
        yield gauge(
            "mq_tls_certificate_expiry_seconds",
            "Seconds until the certificate ends",
            self.certificates.expires_in_s(),
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class OpenDoors:
    """A55: that everybody who reaches the ports may do everything is a figure that can be watched."""

    def __init__(self, settings: Settings, image: SecurityImage) -> None:
        self._settings = settings
        self._image = image

    def word(self) -> str:
        """For a header of /readyz; empty once names are asked for."""
        if self._image.guards:
            return ""
        return "open" if self._settings.is_loopback else "open-to-network"

    def collect(self) -> Iterable[Family]:
        yield gauge(
            "mq_security_open", "1 while nobody is asked who they are (mode open)", not self._image.guards
        )
        yield gauge(
            "mq_security_open_to_network",
            "1 while that is so and the ports can be reached from elsewhere (--insecure)",
            not self._image.guards and not self._settings.is_loopback,
        )


def token_issuers(settings: Settings, runtime: Runtime) -> Issuers | None:
    """Raises INVALID_CONFIG."""
    if not settings.oidc_issuer:
        return None
    if not settings.oidc_audience:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG, "--oidc-issuer needs --oidc-audience", "see docs/security.md"
        )
    if importlib.util.find_spec("joserfc") is None:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "tokens of an issuer need the package joserfc",
            "pip install 'headrace[oidc]'",
        )
    issuer = Issuer(settings.oidc_issuer, settings.oidc_audience, settings.oidc_claim, settings.oidc_prefix)
    return Issuers(runtime, issuer, settings.oidc_jwks, settings.oidc_ca)


def certificate_rules(settings: Settings) -> tuple[Rule, ...]:
    """Raises INVALID_CONFIG."""
    rules = parse_rules(settings.tls_users)
    if rules and not (settings.tls_cert and settings.tls_ca) and not settings.secure:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "--tls-users needs --tls-cert, --tls-key and --tls-ca",
            "the authority is who signs the certificates of clients",
        )
    return rules


def key_ring(settings: Settings, runtime: Runtime, image: SecurityImage, sealer: Sealer | None) -> KeyRing:
    """Raises INVALID_CONFIG."""
    return KeyRing(
        image,
        runtime.random_bytes,
        sealer,
        read_access_keys(settings.sqs_credentials) if settings.sqs_credentials else None,
    )


async def found_security(settings: Settings, runtime: Runtime, admin: SecurityAdmin, ring: KeyRing) -> None:
    """A34: at the first start of a secured cluster its administrator is made, and the mode set; once, by whoever is first."""
    image = admin.image
    if not image.super_users:
        files = SecureFiles(Path(settings.security_dir))
        password = files.password.read_text().strip()
        keys = read_access_keys(str(files.access_key))

        def records() -> dict[str, tuple[bytes, bytes]]:
            salts = {mechanism: runtime.random_bytes(SALT_BYTES) for mechanism in HASHES}
            return {
                mechanism: (salt, salted_password(mechanism, password, salt, DEFAULT_ITERATIONS))
                for mechanism, salt in salts.items()
            }

        made = await runtime.run_blocking(records)
        scram = {
            mechanism: record_of(mechanism, salted, salt, DEFAULT_ITERATIONS)
            for mechanism, (salt, salted) in made.items()
        }
        await admin.found(
            ADMIN, scram, {key_id: ring.seal(key_id, secret) for key_id, secret in keys.items()}
        )
    if image.mode.since_ms == 0:
        await admin.set_mode(Mode.ENFORCED, Principal(USER, ADMIN))
    elif not image.enforces:
        log.warning("this broker was started with --secure, and the cluster's mode is %s", image.mode.mode)


def connect_audit(audit: AuditTrail, image: SecurityImage, denials: Denials) -> None:
    """What is denied, and who comes without a name, goes into the audit, with the rule that says so (A48, A64)."""

    def tell(want: Want, host: str) -> None:
        kind, _, name = want.principal.partition(":")

        def rule() -> str:
            who = Principal(kind, name)
            return image.decide(who, host, want.operation, want.resource, want.name, want.credential).rule

        audit.note(
            AuditEvent(
                event="denied" if image.enforces else "would_deny",
                principal=want.principal,
                host=host,
                operation=word(want.operation),
                resource=word(want.resource),
                name=want.name[:MOST_CHARS],
            ),
            rule,
        )

    def nameless(host: str, client_id: str) -> None:
        audit.note(AuditEvent(event="nameless", host=host, name=client_id[:MOST_CHARS]))

    denials.on_want, denials.on_nameless = tell, nameless


def need_safe_coordinator(settings: Settings, admin: SecurityAdmin) -> None:
    """A51: whoever can write between us and the coordinator decides who may what."""
    url = settings.coordinator
    if not admin.image.enforces or settings.insecure_coordinator or not url.startswith("etcd:"):
        return
    hosts = [endpoint.host for endpoint in etcd_settings(url).endpoints]
    if not all(host == "localhost" or _is_loopback(host) for host in hosts):
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            "this cluster enforces rights, and its etcd is called over a network without TLS",
            "use etcds://… with ca=, or --insecure-coordinator if the network between is yours",
        )


def need_safe_mode(settings: Settings, admin: SecurityAdmin) -> None:
    """X1: what is open is not served to a network unless somebody has said so."""
    need_safe_coordinator(settings, admin)
    if settings.secure and not (settings.is_loopback or settings.insecure or admin.image.enforces):
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"the mode of this cluster is {admin.image.mode.mode}: everybody who reaches {settings.host} could do everything",
            "headrace security enforce on a broker that listens on loopback, or --insecure",
        )
