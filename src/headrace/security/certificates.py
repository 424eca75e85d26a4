"""Adapter: certificates of a cluster's own authority (A57): ECDSA P-256, leaves for 398 days, the authority for ten years.

Keys are written with mode 0600 before anything is in them. `cryptography` is imported where it is needed: a broker without TLS never does.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LEAF_DAYS = 398
LONGEST_SUBJECT = 64
"""Bytes of a common name (ub-common-name)."""
AUTHORITY_DAYS = 3_650
RENEW_DAYS = 30
"""Before it ends, a certificate of ours is made anew."""
_BACK_MINUTES = 5
"""Clocks differ a little."""


class Pair(NamedTuple):
    certificate: Path
    key: Path


class Shown(NamedTuple):
    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before_ms: int
    not_after_ms: int
    is_authority: bool
    serial: str


def make_authority(pair: Pair, name: str) -> None:
    """A new key and its own certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(pair.key, key)
    _write(pair.certificate, _pem(certificate), 0o644)


def user_uri(user: str) -> str:
    """In the certificate of a user."""
    return f"headrace://cluster/user/{user}"


def issue(authority: Pair, pair: Pair, name: str, hosts: Sequence[str], uris: Sequence[str] = ()) -> None:
    """A certificate for these names and addresses, good for a server and for a client; without any host for a client alone."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer, issuer_key = _read(authority.certificate), _read_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    # A name that is too long for a subject is among the alternative names alone, which then count (RFC 5280, 4.1.2.6).
    has_subject = len(name.encode()) <= LONGEST_SUBJECT
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)] if has_subject else [])
    serves = [ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []
    purposes = x509.ExtendedKeyUsage([*serves, ExtendedKeyUsageOID.CLIENT_AUTH])
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(subject, issuer.subject, key, LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(purposes, critical=False)
        .add_extension(above, critical=False)
    )
    names: list[x509.GeneralName] = [_general(host) for host in dict.fromkeys(hosts)]
    names += [x509.UniformResourceIdentifier(uri) for uri in uris]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not has_subject)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    _write_key(pair.key, key)
    _write(pair.certificate, _pem(certificate) + _pem(issuer), 0o644)


def show(path: Path) -> Shown:
    from cryptography import x509

    found = _read(path)
    try:
        alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(str(name.value) for name in alternative)
    except x509.ExtensionNotFound:
        names = ()
    try:
        authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        authority = False
    return Shown(
        found.subject.rfc4514_string(),
        found.issuer.rfc4514_string(),
        names,
        _ms(found.not_valid_before_utc),
        _ms(found.not_valid_after_utc),
        authority,
        f"{found.serial_number:x}",
    )


def expiry_ms(path: str) -> int:
    return _ms(_read(Path(path)).not_valid_after_utc)


def problems(pair: Pair, authority: Path | None, hosts: Iterable[str], now_ms: int) -> list[str]:
    """What is wrong with a certificate that should serve under these names."""
    from cryptography.exceptions import InvalidSignature

    found, shown, wrong = _read(pair.certificate), show(pair.certificate), []
    if _read_key(pair.key).public_key() != found.public_key():
        wrong.append(f"{pair.key} is not the key of {pair.certificate}")
    if now_ms >= shown.not_after_ms:
        wrong.append(f"{pair.certificate} has expired")
    elif now_ms < shown.not_before_ms:
        wrong.append(f"{pair.certificate} is not valid yet")
    missing = [host for host in hosts if host not in shown.names]
    if missing:
        wrong.append(f"{pair.certificate} is not for {', '.join(missing)}")
    if authority is not None:
        try:
            found.verify_directly_issued_by(_read(authority))
        except (InvalidSignature, ValueError, TypeError):
            wrong.append(f"{pair.certificate} is not of {authority}")
    return wrong


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=_BACK_MINUTES))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _read(path: Path) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{path} is no key of ours: only ECDSA keys sign here")
    return key


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all: a broker may look at it at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _ms(when: datetime.datetime) -> int:
    return int(when.timestamp() * 1000)
