"""Command: what `security init` and `serve --secure` have in common: the files, and lines for clients that can be pasted (A56)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from shlex import quote
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
    if not settings.secrets_key_file:
        settings = msgspec.structs.replace(settings, secrets_key_file=str(files.secrets_key))
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
    """Nothing secret is printed or stands in anybody's list of processes (A29, A35): each line names a file that only its owner reads."""
    ca, password, settings = files.authority.certificate, files.password, client_settings(files)
    return [
        ClientLine("headrace", f"export HEADRACE_BOOTSTRAP={bootstrap} HEADRACE_URL={url} HEADRACE_USER={ADMIN} "
                   f"HEADRACE_PASSWORD_FILE={quote(str(password))} HEADRACE_TLS_CA={quote(str(ca))}"),
        ClientLine("librdkafka", f"kcat -F {quote(str(settings.librdkafka))} -b {bootstrap} -L"),
        ClientLine("Java", f"kafka-topics.sh --bootstrap-server {bootstrap} --command-config {quote(str(settings.java))} --list"),
        ClientLine("kafkajs", f'new Kafka({{ brokers: ["{bootstrap.split(",")[0]}"], ssl: {{ ca: [fs.readFileSync("{ca}")] }}, '
                   f'sasl: {{ mechanism: "scram-sha-512", username: "{ADMIN}", password: fs.readFileSync("{password}", "utf8").trim() }} }})'),
        # Version 1 of the AWS command line (what pip has) looks for SQS in a place of its own, whatever the variable says.
        ClientLine("aws, boto3", f"export AWS_SHARED_CREDENTIALS_FILE={quote(str(files.access_key))} AWS_CA_BUNDLE={quote(str(ca))} "
                   f"AWS_ENDPOINT_URL_SQS={url} AWS_DEFAULT_REGION=us-east-1; aws --endpoint-url $AWS_ENDPOINT_URL_SQS sqs list-queues"),
        ClientLine("Spark", f'spark.read.format("headrace").option("bootstrap", "{bootstrap}").option("user", "{ADMIN}")'
                   f'.option("passwordFile", "{password}").option("tls.ca", "{ca}").option("subscribe", "TOPIC").load()'),
        ClientLine("curl", f"curl -K {quote(str(settings.curl))} {url}/api/v1/topics"),
    ]  # fmt: skip


class ClientConfigs(NamedTuple):
    librdkafka: Path
    java: Path
    curl: Path


def client_settings(files: SecureFiles) -> ClientConfigs:
    """Files for clients that take their secrets from one; written anew when the directory was moved."""
    ca, word = files.authority.certificate, files.password.read_text().strip()
    made = ClientConfigs(
        *(files.directory / f"{ADMIN}.{name}" for name in ("librdkafka", "properties", "curl"))
    )
    login = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    _keep(made.librdkafka, f"{login}ssl.ca.location={ca}\nsasl.username={ADMIN}\nsasl.password={word}\n")
    _keep(
        made.java,
        f"{login}ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
        f'sasl.jaas.config={module} required username="{ADMIN}" password="{word}";\n',
    )
    _keep(made.curl, f'cacert = "{ca}"\nuser = "{ADMIN}:{word}"\n')
    return made


def _keep(path: Path, content: str) -> None:
    if path.exists() and path.read_text() == content:
        return
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)


def shown_lines(lines: list[ClientLine]) -> str:
    parts = []
    for client, text in lines:
        indented = text.replace("\n", "\n    ")
        parts.append(f"  {client}\n    {indented}")
    return "\n".join(parts)
