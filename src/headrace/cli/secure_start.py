"""Command: what `security init` and `serve --secure` have in common: the files, and lines for clients that can be pasted (A56)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from headrace.node.settings import Settings
from headrace.security.founding import ADMIN, SecureFiles, initialise


class ClientLine(NamedTuple):
    client: str
    text: str


def secure_files(settings: Settings) -> SecureFiles:
    return SecureFiles(
        Path(settings.security_dir) if settings.security_dir else settings.directory() / "security"
    )


def hosts_of(settings: Settings) -> list[str]:
    """Under which clients will call this broker."""
    wildcard = settings.host in ("0.0.0.0", "::", "")
    return [host for host in (settings.advertised_host, "" if wildcard else settings.host) if host]


def secured(settings: Settings, node_ids: list[int], hosts: list[str]) -> tuple[Settings, list[Path]]:
    """The settings with the files that they name, all of which are there now; and those that were made."""
    import msgspec

    files = secure_files(settings)
    made = initialise(files, [*hosts_of(settings), *hosts], node_ids, time.time_ns() // 1_000_000)
    if settings.tls_cert:
        return settings, made  # bring-your-own certificates are as good
    pair = files.broker(settings.node_id)
    return (
        msgspec.structs.replace(
            settings,
            security_dir=str(files.directory),
            tls_cert=str(pair.certificate),
            tls_key=str(pair.key),
            tls_ca=str(files.authority.certificate),
        ),
        made,
    )


def client_lines(files: SecureFiles, bootstrap: str, url: str) -> list[ClientLine]:
    ca, password = files.authority.certificate, files.password
    word = password.read_text().strip()
    java = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{ADMIN}" password="{word}";'
    return [
        ClientLine("headrace", f"export HEADRACE_BOOTSTRAP={bootstrap} HEADRACE_URL={url} HEADRACE_USER={ADMIN} "
                   f"HEADRACE_PASSWORD_FILE={password} HEADRACE_TLS_CA={ca}"),
        ClientLine("librdkafka", f"kcat -b {bootstrap} -X security.protocol=SASL_SSL -X ssl.ca.location={ca} "
                   f"-X sasl.mechanism=SCRAM-SHA-512 -X sasl.username={ADMIN} -X sasl.password={word} -L"),
        ClientLine("Java", f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
                   f"sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={java}"),
        ClientLine("kafkajs", f'new Kafka({{ brokers: ["{bootstrap.split(",")[0]}"], ssl: {{ ca: [fs.readFileSync("{ca}")] }}, '
                   f'sasl: {{ mechanism: "scram-sha-512", username: "{ADMIN}", password: "{word}" }} }})'),
        ClientLine("curl", f"curl --cacert {ca} -u {ADMIN}:{word} {url}/api/v1/topics"),
    ]  # fmt: skip


def shown_lines(lines: list[ClientLine]) -> str:
    parts = []
    for client, text in lines:
        indented = text.replace("\n", "\n    ")
        parts.append(f"  {client}\n    {indented}")
    return "\n".join(parts)
