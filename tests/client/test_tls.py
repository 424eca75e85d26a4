"""A27, A49 (transport), A53, A56, A58, A59, P2 over TLS (short): one command secures a broker or a cluster, and clients come in with what it printed."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import RawClient
from sasl_clients import (
    Login,
    WrongPassword,
    librdkafka,
    with_aiokafka,
    with_confluent,
    with_kafka_python,
    with_kafkajs,
    with_kcat,
)

from headrace.cli.secure_start import client_lines, client_settings
from headrace.core.cluster_key import PEER_CONNECTIONS, derive
from headrace.core.errors import HeadraceError
from headrace.core.peer_proof import MECHANISM, Hello, answer_challenge
from headrace.node.cluster_key import NAME, SEALED
from headrace.node.securing import need_safe_coordinator
from headrace.node.settings import Settings
from headrace.security.access_keys import read_access_keys
from headrace.security.certificates import Pair, issue, make_authority, show
from headrace.security.founding import ADMIN, SecureFiles, initialise
from headrace.security.image import SecurityImage
from headrace.security.records import Mode, ModeRecord, encode
from headrace.security.sealing import read_sealer
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, ServerTls, etcd_binary
from headrace.wire.api import ApiKey
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.client


class Secure:
    def __init__(self, data_dir: Path, bootstrap: str, urls: list[str], pid: int = 0) -> None:
        self.pid = pid
        self.files = SecureFiles(data_dir / "security")
        self.bootstrap = bootstrap
        self.urls = urls
        self.ca = str(self.files.authority.certificate)
        self.password = self.files.password.read_text().strip()

    def login(self, mechanism: str = "SCRAM-SHA-512") -> Login:
        return Login(self.bootstrap, mechanism, ADMIN, self.password, self.ca)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        url: str = "",
        user: str = ADMIN,
        password: str = "",
    ) -> tuple[int, Any]:
        request = urllib.request.Request((url or self.urls[0]) + path, method=method)
        login = base64.b64encode(f"{user}:{password or self.password}".encode()).decode()
        request.add_header("authorization", f"Basic {login}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        trust = ssl.create_default_context(cafile=self.ca)
        try:
            with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as problem:
            return problem.code, json.loads(problem.read() or b"null")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    data_dir = tmp_path_factory.mktemp("secure") / "data"
    with BrokerProcess(data_dir, arguments=("--secure",)) as running:
        yield Secure(
            data_dir,
            f"localhost:{running.kafka_port}",
            [f"https://localhost:{running.http_port}"],
            running.pid,
        )


CLIENTS: dict[str, Callable[..., None]] = {
    "confluent": with_confluent,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
    "kcat": with_kcat,
}


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [
        ("confluent", "SCRAM-SHA-512"),
        ("confluent", "PLAIN"),
        ("aiokafka", "SCRAM-SHA-256"),
        ("kafka-python", "PLAIN"),
        ("kcat", "SCRAM-SHA-256"),
        ("kafkajs", "PLAIN"),
    ],
)
def test_p2_each_client_logs_in_over_tls(
    secure: Secure, topic: str, client: str, mechanism: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = CLIENTS.get(client) or with_kafkajs(request.getfixturevalue("kafkajs"))
    admin = AdminClient(librdkafka(secure.login()))
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(60)
    run(secure.login(mechanism), topic, tmp_path)
    with pytest.raises(WrongPassword):
        run(secure.login(mechanism)._replace(password="wrong"), topic, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="what /proc says")
def test_a35_nothing_of_its_memory_is_in_a_core_dump(secure: Secure) -> None:
    limits = Path(f"/proc/{secure.pid}/limits").read_text().splitlines()
    (line,) = [line for line in limits if line.startswith("Max core file size")]
    assert line.split()[4:6] == ["0", "0"], "and nobody raises it again"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def handshake(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 30), server_hostname="localhost")


def test_a53_a_secured_broker_takes_nothing_plain(secure: Secure) -> None:
    for place in (secure.bootstrap, secure.urls[0]):
        with socket.create_connection(("127.0.0.1", port_of(place)), 30) as plain:
            plain.sendall(b"\x00\x00\x00\x10GET /livez HTTP/1.1\r\n\r\n")
            try:
                assert plain.recv(1) == b""
            except ConnectionResetError:
                pass


@pytest.mark.parametrize("which", ["kafka", "http"])
def test_a58_old_and_weak_tls_is_refused_and_the_best_is_chosen(secure: Secure, which: str) -> None:
    port = port_of(secure.bootstrap if which == "kafka" else secure.urls[0])
    trust = ssl.create_default_context(cafile=secure.ca)
    with handshake(port, trust) as best:
        assert best.version() == "TLSv1.3" and best.compression() is None
    modern = ssl.create_default_context(cafile=secure.ca)
    modern.maximum_version = ssl.TLSVersion.TLSv1_2
    with handshake(port, modern) as older:
        suite = older.cipher()
        assert older.version() == "TLSv1.2" and suite is not None and suite[0].startswith("ECDHE-")
    weak = ssl.create_default_context(cafile=secure.ca)
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("AES256-SHA256:AES128-SHA:ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        handshake(port, weak)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(port, ssl.create_default_context())  # whoever does not trust the authority
    wrong = ssl.create_default_context(cafile=secure.ca)
    with pytest.raises(ssl.SSLCertVerificationError):
        wrong.wrap_socket(
            socket.create_connection(("127.0.0.1", port), 30), server_hostname="elsewhere.example"
        )


@pytest.mark.skipif(not os.environ.get("HEADRACE_SECURITY"), reason="long: make security")
def test_p9_sslyze_finds_nothing(secure: Secure, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    port = secure.bootstrap.rpartition(":")[2]
    uv = Path(sys.executable).with_name("uv")
    command = [
        str(uv),
        "tool",
        "run",
        "-q",
        "--from",
        "sslyze==6.3.1",
        "sslyze",
        f"localhost:{port}",
        f"--json_out={report}",
    ]
    subprocess.run(command, check=False, capture_output=True, timeout=900)
    (scanned,) = json.loads(report.read_text())["server_scan_results"]
    found = {name: part["result"] for name, part in scanned["scan_result"].items() if part.get("result")}
    for old in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert found[f"{old}_cipher_suites"]["accepted_cipher_suites"] == [], old
    assert found["tls_1_3_cipher_suites"]["accepted_cipher_suites"]
    for suite in found["tls_1_2_cipher_suites"]["accepted_cipher_suites"]:
        assert "ECDHE" in suite["cipher_suite"]["name"], suite
    assert not found["heartbleed"]["is_vulnerable_to_heartbleed"]
    assert not found["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
    assert not found["tls_compression"]["supports_compression"]
    assert not found["session_renegotiation"]["is_vulnerable_to_client_renegotiation_dos"]
    assert "NOT_VULNERABLE" in found["robot"]["robot_result"]


def test_a53_what_only_looks_like_tls_costs_nobody_else_anything(secure: Secure) -> None:
    port = port_of(secure.bootstrap)
    broken = []
    for number in range(20):
        each = socket.create_connection(("127.0.0.1", port), 30)
        each.sendall(b"\x16\x03\x01" + bytes([number]) * 60)
        broken.append(each)
    silent = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(20)]
    assert secure.ask("GET", "/api/v1/topics")[0] == 200
    assert AdminClient(librdkafka(secure.login())).list_topics(timeout=60).brokers
    for each in (*broken, *silent):
        each.close()


def test_a22_over_tls_a_name_and_a_password_are_enough(secure: Secure) -> None:
    status, answer = secure.ask("GET", "/api/v1/security")
    assert (status, answer["mode"], answer["super_users"]) == (200, "enforced", [f"User:{ADMIN}"])
    assert secure.ask("GET", "/api/v1/security", password="wrong")[0] == 401


def test_a29_login_keeps_a_token_that_works_at_both_ports_until_logout(
    secure: Secure, tmp_path: Path
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}

    def headrace(*words: str, code: int = 0, **more: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words, "--json"],
            env={**kept, "HOME": str(tmp_path), **more}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout or done.stderr)

    way: dict[str, Any] = {
        "HEADRACE_BOOTSTRAP": secure.bootstrap,
        "HEADRACE_URL": secure.urls[0],
        "HEADRACE_TLS_CA": secure.ca,
    }
    headrace("login", "--user", ADMIN, code=5, HEADRACE_PASSWORD="wrong", **way)
    made = headrace("login", "--user", ADMIN, HEADRACE_PASSWORD=secure.password, **way)
    assert (made["user"], made["kept"]) == (ADMIN, "token")
    held = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert held and not [path for path in held if path.stat().st_mode & 0o077]
    assert not [path for path in held if secure.password in path.read_text()]
    (token,) = [path.read_text().strip() for path in held if path.suffix == ".token"]
    assert headrace("security", "status")["mode"] == "enforced"  # over HTTP, from the context
    assert "items" in headrace("topic", "list")  # over Kafka
    assert "items" in headrace("quota", "list")  # frames of our own
    assert headrace("logout")["ended"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and token in path.read_text()]
    headrace("security", "status", code=5)
    headrace("logout", code=3)
    by_hand = tmp_path / "token"
    by_hand.write_text(token)
    by_hand.chmod(0o600)
    headrace("security", "status", code=5, HEADRACE_TOKEN_FILE=str(by_hand))


def pair(directory: Path, name: str) -> Pair:
    return Pair(directory / f"{name}.pem", directory / f"{name}.key")


def test_a53_a59_tls_beside_plain_and_another_certificate_while_it_runs(tmp_path: Path, topic: str) -> None:
    """A54: while clients move, both come in at one port. A bad certificate is not taken; connections live on."""
    authority, own = pair(tmp_path, "ca"), pair(tmp_path, "broker")
    make_authority(authority, "test authority")
    issue(authority, own, "broker", ["localhost", "127.0.0.1"])
    arguments = ("--tls-cert", str(own.certificate), "--tls-key", str(own.key))
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        plain.produce(topic, b"plain")
        assert plain.flush(60) == 0
        trust = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
        secure = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **trust})
        secure.produce(topic, b"secure")
        assert secure.flush(60) == 0
        context = ssl.create_default_context(cafile=str(authority.certificate))

        def serial() -> str:
            with handshake(broker.kafka_port, context) as made:
                found = made.getpeercert()
                assert found is not None
                return str(found["serialNumber"]).lower().lstrip("0")

        assert serial() == show(own.certificate).serial.lstrip("0")
        lives_on = handshake(broker.http_port, context)
        own.certificate.write_text("no certificate")
        broker.signal(signal.SIGHUP)
        before = serial()
        issue(authority, own, "broker", ["localhost", "127.0.0.1"])
        renewed = show(own.certificate).serial.lstrip("0")
        assert renewed != before
        while serial() != renewed:
            broker.signal(signal.SIGHUP)
        lives_on.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert lives_on.recv(12) == b"HTTP/1.1 200"
        lives_on.close()
        secure.produce(topic, b"secure still")
        assert secure.flush(60) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    data_dir = tmp_path_factory.mktemp("cluster")
    command = [
        sys.executable, "-m", "headrace", "serve", "--brokers", "3", "--secure", "--json", "--kafka-port", "0",
        "--http-port", "0", "--data-dir", str(data_dir),
    ]  # fmt: skip
    running = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ)
    assert running.stdout is not None
    try:
        ready = json.loads(running.stdout.readline())
        yield Secure(data_dir, ready["bootstrap"], [place["http"] for place in ready["brokers"]])
    finally:
        running.terminate()
        running.wait(120)
        running.stdout.close()


def test_a56_the_printed_lines_work_and_hold_no_secret(secure: Secure) -> None:
    """A29, A35: nothing that is printed, and nothing that `ps` shows, has the password in it."""
    lines = dict(client_lines(secure.files, secure.bootstrap, secure.urls[0]))
    assert not [line for line in lines.values() if secure.password in line]
    for path in client_settings(secure.files):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and secure.password in path.read_text()
    (secret,) = read_access_keys(str(secure.files.access_key)).values()
    assert not [line for line in lines.values() if secret in line]
    settings, _, command = lines["aws, boto3"].partition("; ")
    assert command == "aws --endpoint-url $AWS_ENDPOINT_URL_SQS sqs list-queues"
    ask = "import boto3; print(boto3.client('sqs').list_queues()['ResponseMetadata']['HTTPStatusCode'])"
    done = subprocess.run(
        ["sh", "-c", f'{settings}; exec "$0" -c "$1"', sys.executable, ask], capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.stdout == "200\n", done.stderr
    for client, said in (("librdkafka", "1 brokers"), ("curl", '"items"')):
        done = subprocess.run(shlex.split(lines[client]), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and said in done.stdout, done.stderr


def test_a56_a_secured_cluster_replicates_and_any_broker_answers_for_any_queue(
    cluster: Secure, topic: str
) -> None:
    """A27: a request that another broker has to decide is passed on with the name of who asks, and judged there."""
    admin = AdminClient(librdkafka(cluster.login()))
    for future in admin.create_topics([NewTopic(topic, 3, 3)]).values():
        future.result(60)
    producer = confluent_kafka.Producer({**librdkafka(cluster.login()), "acks": "all"})
    outcome: list[Any] = []
    for number in range(60):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(120) == 0 and outcome == [None] * 60
    from headrace.cli.user_view import scram_records

    user = {"name": "alice", "scram": scram_records("her word", 4096)}
    assert cluster.ask("POST", "/api/v1/security/users", user)[0] == 201
    queues = [f"q{number}" for number in range(4)]
    for queue in queues:
        assert cluster.ask("POST", "/api/v1/queues", {"name": queue})[0] < 300
    for url in cluster.urls:
        for queue in queues:
            path = f"/api/v1/queues/{queue}"
            assert cluster.ask("GET", path, url=url)[0] == 200
            status, answer = cluster.ask("GET", path, url=url, user="alice", password="her word")
            assert status == 404, answer
            status, answer = cluster.ask(
                "POST",
                f"/queues/{queue}/messages",
                {"value": "x"},
                url=url,
                user="alice",
                password="her word",
            )
            assert status == 404, answer
            status, answer = cluster.ask("POST", f"/queues/{queue}/messages", {"value": "x"}, url=url)
            assert status < 300, answer
        assert cluster.ask("GET", "/api/v1/topics", url=url, user="alice", password="wrong")[0] == 401


class Impostor(RawClient):
    """Somebody who has read the cluster's key in the coordinator, with a certificate or without."""

    def __init__(self, cluster: Secure, port: int, pair: Pair | None) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cafile=cluster.ca)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def claim(self, key: bytes, hello: Hello) -> int:
        assert self.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(MECHANISM)).error_code == 0
        challenge = self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(hello.encode()))
        assert challenge.error_code == 0, challenge
        proof = answer_challenge(key, hello, bytes(challenge.auth_bytes))
        return int(self.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(proof)).error_code)


def test_a49_the_clusters_key_without_a_brokers_certificate_proves_nothing(cluster: Secure) -> None:
    (path,) = cluster.files.directory.parent.rglob("coordinator.db")
    with closing(sqlite3.connect(path)) as store:
        kept = {
            key: (value, at) for key, value, at in store.execute("SELECT key, value, mod_revision FROM kv")
        }
    (held,) = [value for key, (value, _) in kept.items() if key.endswith("secrets/cluster")]
    # Who has the coordinator alone has not even that (decision 0084).
    sealer = read_sealer(str(cluster.files.secrets_key))
    secret = sealer.open(bytes.fromhex(held.removeprefix(SEALED).decode()), NAME)
    assert held.startswith(SEALED) and secret is not None
    epochs = {number: kept[f"brokers/{number}"][1] for number in (1, 2, 3)}
    port = int(cluster.bootstrap.split(",")[0].rpartition(":")[2])
    hello = Hello(2, epochs[2], 1, epochs[1], bytes(32))
    key = derive(secret, PEER_CONNECTIONS)
    codes = [
        Impostor(cluster, port, pair).claim(key, hello)
        for pair in (None, cluster.files.broker(3), cluster.files.broker(2))
    ]
    assert codes == [58, 58, 0]


@pytest.mark.skipif(etcd_binary() is None, reason="etcd is not installed")
def test_a51_a_secured_cluster_on_an_etcd_with_tls(tmp_path: Path, topic: str) -> None:
    files = SecureFiles(tmp_path / "security")
    initialise(files, [], [1, 2], time.time_ns() // 1_000_000)
    pair = Pair(tmp_path / "etcd.pem", tmp_path / "etcd.key")
    issue(files.authority, pair, "etcd", ["localhost", "127.0.0.1"])
    ca = str(files.authority.certificate)
    probe = ssl.create_default_context(cafile=ca)
    probe.load_cert_chain(pair.certificate, pair.key)
    tls = ServerTls(str(pair.certificate), str(pair.key), client_ca=ca, probe=probe)
    etcd = EtcdServer(tmp_path / "etcd", tls=tls).start()
    started: list[BrokerProcess] = []
    try:
        for number in (1, 2):
            own = files.broker(number)
            url = f"etcds://{etcd.address}/prod?ca={ca}&cert={own.certificate}&key={own.key}"
            more = (
                "--secure",
                "--security-dir",
                str(files.directory),
                "--node-id",
                str(number),
                "--coordinator",
                url,
            )
            started.append(BrokerProcess(tmp_path / f"data{number}", arguments=more).start())
        bootstrap = ",".join(f"localhost:{each.kafka_port}" for each in started)
        secure = Secure(tmp_path, bootstrap, [f"https://localhost:{each.http_port}" for each in started])
        admin = AdminClient(librdkafka(secure.login()))
        for future in admin.create_topics([NewTopic(topic, 2, 2)]).values():
            future.result(60)
        producer = confluent_kafka.Producer({**librdkafka(secure.login()), "acks": "all"})
        outcome: list[Any] = []
        for number in range(20):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: outcome.append(error))
        assert producer.flush(120) == 0 and outcome == [None] * 20
        assert {secure.ask("GET", "/api/v1/security", url=url)[1]["mode"] for url in secure.urls} == {
            "enforced"
        }
    finally:
        for each in started:
            each.__exit__(None, None, None)
        etcd.stop()


def test_a51_an_etcd_on_a_network_without_tls_is_not_believed_about_rights() -> None:
    image = SecurityImage()
    image.apply("mode", encode(ModeRecord(Mode.ENFORCED)))
    admin = SimpleNamespace(image=image)

    def start(**settings: Any) -> None:
        need_safe_coordinator(Settings(**settings), admin)  # type: ignore[arg-type]

    start(coordinator="etcd://127.0.0.1:2379,localhost")
    start(coordinator="etcds://10.1.2.3")
    start(coordinator="etcd://10.1.2.3", insecure_coordinator=True)
    with pytest.raises(HeadraceError, match="without TLS"):
        start(coordinator="etcd://127.0.0.1,10.1.2.3")
    image.apply("mode", encode(ModeRecord(Mode.OBSERVE)))
    start(coordinator="etcd://10.1.2.3")
