"""A9, A14-A19, A36, A44, A45, A52, P2 (short): real clients log in, do what they may, and are told what they may not."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
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
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.user_view import scram_records
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess(arguments=("--allow-plain-without-tls",)) as running:
        yield Secured(running)


def use_topic(secured: Secured, user: str, topic: str) -> None:
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, topic)
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, topic)
    secured.allow(user, AclOperation.READ, ResourceType.GROUP, f"g-{topic}")


CLIENTS: dict[str, Callable[..., None]] = {
    "confluent": with_confluent,
    "aiokafka": with_aiokafka,
    "kafka-python": with_kafka_python,
    "kcat": with_kcat,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [*CLIENTS, "kafkajs"])
def test_p2_each_client_logs_in_and_a_wrong_password_is_its_own_error(
    secured: Secured, topic: str, client: str, mechanism: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    run = CLIENTS.get(client) or with_kafkajs(request.getfixturevalue("kafkajs"))
    user = secured.user()
    use_topic(secured, user, secured.topic(topic))
    run(secured.login(user, "a word", mechanism), topic, tmp_path)
    with pytest.raises(WrongPassword):
        run(secured.login(user, "wrong", mechanism), topic, tmp_path)


def produce(login: Login, topic: str, *, within: float = 30.0) -> confluent_kafka.KafkaError | None:
    """None when it was written."""
    outcome: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({**librdkafka(login), "message.timeout.ms": int(within * 1000)})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(within + 30)
    return outcome[0]


def code(error: confluent_kafka.KafkaError | None) -> str:
    return "" if error is None else error.name()


def test_a44_who_may_not_hears_the_same_of_what_is_there_and_what_is_not(
    secured: Secured, topic: str
) -> None:
    user = secured.user()
    login = secured.login(user, "a word")
    secured.topic(topic)
    secured.topic(f"{topic}-mine")
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, f"{topic}-mine")
    assert code(produce(login, topic)) == "TOPIC_AUTHORIZATION_FAILED"
    assert code(produce(login, f"{topic}-absent")) == "TOPIC_AUTHORIZATION_FAILED"
    assert produce(login, f"{topic}-mine") is None
    mine = AdminClient(librdkafka(login))
    assert list(mine.list_topics(timeout=30).topics) == [f"{topic}-mine"]
    for future in mine.create_topics([NewTopic(topic, 1, 1)]).values():  # A46: not "exists"
        with pytest.raises(confluent_kafka.KafkaException, match="uthorization"):
            future.result(30)
    missing = [f"/api/v1/topics/{topic}", f"/api/v1/topics/{topic}-absent"]
    answers = [secured.http("GET", path, user=user, password="a word") for path in missing]
    assert [status for status, _ in answers] == [404, 404]
    assert answers[0][1]["detail"].replace(topic, "") == answers[1][1]["detail"].replace(
        f"{topic}-absent", ""
    )
    status, shown = secured.http("GET", "/api/v1/topics", user=user, password="a word")
    assert status == 200 and [each["name"] for each in shown["items"]] == [f"{topic}-mine"]
    status, denied = secured.http("DELETE", f"/api/v1/topics/{topic}-mine", user=user, password="a word")
    assert (status, denied["code"]) == (403, "ACCESS_DENIED") and "needs Delete on topic" in denied["detail"]


def test_a44_one_forbidden_topic_does_not_stop_the_others(secured: Secured, topic: str) -> None:
    user = secured.user()
    for name in (topic, f"{topic}-closed"):
        secured.topic(name)
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, topic)
    outcome: dict[str, str] = {}
    producer = confluent_kafka.Producer(librdkafka(secured.login(user, "a word")))
    for name in (topic, f"{topic}-closed"):
        producer.produce(
            name, b"x", on_delivery=lambda error, sent: outcome.update({sent.topic(): code(error)})
        )
    producer.flush(60)
    assert outcome == {topic: "", f"{topic}-closed": "TOPIC_AUTHORIZATION_FAILED"}


def test_a37_a_denial_wins_and_prefixes_and_wildcards_count(secured: Secured, topic: str) -> None:
    user = secured.user()
    login = secured.login(user, "a word")
    for name in (topic, f"{topic}-not"):
        secured.topic(name)
    write, prefix = AclOperation.WRITE, ResourcePatternType.PREFIXED
    given = secured.allow(user, write, ResourceType.TOPIC, topic, pattern=prefix)
    assert produce(login, topic) is None and produce(login, f"{topic}-not") is None
    secured.allow(user, write, ResourceType.TOPIC, f"{topic}-not", permission=AclPermissionType.DENY)
    assert produce(login, topic) is None
    assert code(produce(login, f"{topic}-not")) == "TOPIC_AUTHORIZATION_FAILED"
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.MATCH, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )  # fmt: skip
    assert secured.admin.describe_acls(wanted).result(30) == [given]
    (gone,) = secured.admin.delete_acls([wanted]).values()
    assert gone.result(30) == [given]
    assert code(produce(login, topic)) == "TOPIC_AUTHORIZATION_FAILED"


def test_a9_who_is_disabled_is_out_at_every_door_and_so_is_what_is_open(secured: Secured, topic: str) -> None:
    user = secured.user()
    use_topic(secured, user, secured.topic(topic))
    refused: list[str] = []
    config = {**librdkafka(secured.login(user, "a word")), "group.id": f"g-{topic}", "auto.offset.reset": "earliest",
              "error_cb": lambda problem: refused.append(problem.name())}  # fmt: skip
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    assert produce(secured.login(user, "a word"), topic) is None
    while (message := consumer.poll(1.0)) is None or message.error() is not None:
        pass
    assert secured.http("GET", "/api/v1/topics", user=user, password="a word")[0] == 200
    secured.ask("PATCH", f"/users/{user}", {"enabled": False})
    while "_AUTHENTICATION" not in refused:
        consumer.poll(0.2)
    assert secured.http("GET", "/api/v1/topics", user=user, password="a word")[0] == 401
    consumer.close()


def test_a16_a_mechanism_that_is_not_known_is_answered_with_those_that_are(
    fresh_broker: Any, topic: str
) -> None:
    secured = Secured(fresh_broker())  # PLAIN is not on offer without TLS
    user = secured.user()
    refused: list[str] = []
    config = {
        **librdkafka(secured.login(user, "a word", "PLAIN")),
        "error_cb": lambda each: refused.append(each.str()),
    }
    producer = confluent_kafka.Producer(config)
    while not refused:
        producer.poll(0.2)
    assert "SCRAM-SHA-256" in refused[0] and "SCRAM-SHA-512" in refused[0], refused


def test_a32_kip_554_through_the_admin_client(secured: Secured) -> None:
    name = f"scram-{secrets.token_hex(4)}"
    upsert = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"its word"
    )
    secured.admin.alter_user_scram_credentials([upsert])[name].result(30)
    described = secured.admin.describe_user_scram_credentials([name])[name].result(30)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    assert name in secured.admin.describe_user_scram_credentials().result(30)
    weak = UserScramCredentialUpsertion(
        name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"its word"
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        secured.admin.alter_user_scram_credentials([weak])[name].result(30)
    assert refused.value.args[0].name() == "UNACCEPTABLE_CREDENTIAL"
    gone = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
    secured.admin.alter_user_scram_credentials([gone])[name].result(30)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        secured.admin.alter_user_scram_credentials([gone])[name].result(30)
    assert refused.value.args[0].name() == "RESOURCE_NOT_FOUND"
    assert all(each["name"] != name for each in secured.ask("GET", "/users")["items"])


def test_a23_a_token_is_its_owner_until_it_is_deleted_or_the_owner_is(secured: Secured, topic: str) -> None:
    user, other = secured.user(), secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    base = "/api/v1/security/tokens"
    status, made = secured.http("POST", base, {"name": "ci"}, user=user, password="a word")
    token = made["token"]
    assert status == 201 and token.startswith("hr_") and made["owner"] == user
    status, shown = secured.http("GET", "/api/v1/topics", token=token)
    assert status == 200 and [each["name"] for each in shown["items"]] == [topic]
    assert secured.http("DELETE", f"/api/v1/topics/{topic}", token=token)[0] == 403
    for wrong in (
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        "hr_" + "a" * 49,
        "nothing",
        token.lower(),
    ):
        assert secured.http("GET", "/api/v1/topics", token=wrong)[0] == 401
    mine = secured.http("GET", base, token=token)[1]["items"]
    assert [each["id"] for each in mine] == [made["id"]] and token not in json.dumps(mine)
    assert secured.http("GET", base, user=other, password="a word")[1]["items"] == []
    assert secured.http("DELETE", f"{base}/{made['id']}", user=other, password="a word")[0] == 404
    assert secured.http("POST", base, {"owner": user}, user=other, password="a word")[0] == 403
    assert secured.http("DELETE", f"{base}/{made['id']}", token=token)[0] == 204
    assert secured.http("GET", "/api/v1/topics", token=token)[0] == 401
    again = secured.http("POST", base, {"owner": user}, user=ADMIN, password=PASSWORD)[1]["token"]
    assert secured.http("GET", "/api/v1/topics", token=again)[0] == 200
    secured.ask("DELETE", f"/users/{user}")
    assert secured.http("GET", "/api/v1/topics", token=again)[0] == 401


def test_a34_the_last_super_user_stays(secured: Secured) -> None:
    for method, path, body in (
        ("PATCH", f"/users/{ADMIN}", {"enabled": False}),
        ("DELETE", f"/users/{ADMIN}", None),
        ("PUT", "/super-users", {"super_users": []}),
    ):
        status, answer = secured.http(method, f"/api/v1/security{path}", body, user=ADMIN, password=PASSWORD)
        assert status >= 400 and "administer" in answer["detail"], answer


def test_a22_over_http_nobody_without_a_name_is_heard(secured: Secured) -> None:
    for path in ("/api/v1/topics", "/metrics", "/api/v1/security"):
        status, answer = secured.http("GET", path)
        assert (status, answer["code"]) == (401, "UNAUTHENTICATED"), path
    assert secured.http("GET", "/api/v1/topics", user=ADMIN, password="wrong")[0] == 401
    assert secured.http("GET", "/api/v1/topics", user="nobody", password="wrong")[0] == 401
    with urllib.request.urlopen(secured.broker.url + "/livez", timeout=30) as alive:
        assert alive.status == 200
    request = urllib.request.Request(
        secured.broker.url, b'{"QueueName": "q"}',
        {"x-amz-target": "AmazonSQS.CreateQueue", "content-type": "application/x-amz-json-1.0"},
    )  # fmt: skip
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 403 and b"MissingAuthenticationToken" in refused.value.read()


def test_a52_modes_are_switched_while_clients_work(fresh_broker: Any, topic: str) -> None:
    broker = fresh_broker()
    open_config = {"bootstrap.servers": broker.bootstrap}
    plain = confluent_kafka.Producer({**open_config, "message.timeout.ms": 5000})
    plain.produce(topic, b"open")
    assert plain.flush(60) == 0
    world = Secured.__new__(Secured)
    world.broker = broker
    status, answer = world.http("PUT", "/api/v1/security/mode", {"mode": "observe"})
    assert status >= 400 and "super user" in answer["detail"], "nobody could turn it back"
    world.ask(
        "POST", "/users", {"name": ADMIN, "scram": scram_records(PASSWORD, 4096), "super": True}, user=""
    )
    world.set_mode("observe", user="")
    plain.produce(topic, b"observed")
    assert plain.flush(60) == 0
    seen = world.ask("GET", "/denials")
    assert any(each["name"] == topic and each["operation"] == "Write" for each in seen["denied"])
    assert seen["nameless"]
    status, answer = world.http(
        "PUT", "/api/v1/security/mode", {"mode": "enforced"}, user=ADMIN, password=PASSWORD
    )
    assert status == 409 and "without a name" in answer["detail"], answer
    world.set_mode("enforced")
    outcome: list[Any] = []
    plain.produce(topic, b"enforced", on_delivery=lambda error, _: outcome.append(error))
    plain.flush(60)
    assert outcome and outcome[0] is not None
    assert produce(world.login(ADMIN, PASSWORD), topic) is None
    world.set_mode("open")
    assert produce(Login(broker.bootstrap, "SCRAM-SHA-512", ADMIN, PASSWORD), topic) is None
    again = confluent_kafka.Producer(open_config)
    again.produce(topic, b"open again")
    assert again.flush(60) == 0


def test_a30_users_rights_and_the_mode_survive_a_restart(fresh_broker: Any, topic: str) -> None:
    secured = Secured(fresh_broker())
    user = secured.user()
    secured.topic(topic)
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, topic)
    secured.broker.kill()
    secured.broker.start()
    assert produce(secured.login(user, "a word"), topic) is None
    assert code(produce(secured.login(user, "a word"), f"{topic}-other")) == "TOPIC_AUTHORIZATION_FAILED"
    assert secured.http("GET", "/api/v1/topics")[0] == 401
