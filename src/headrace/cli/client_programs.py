"""Codec: first programs for clients: each sends one message, receives it, and ends. A test runs every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Ways(NamedTuple):
    bootstrap: str
    url: str
    topic: str
    user: str = ""
    tls_ca: str = ""


class ClientProgram(NamedTuple):
    file: str
    text: Callable[[Ways], str]


def _sdk(ways: Ways) -> str:
    login = ""
    if ways.user:
        login += f', user={ways.user!r}, password_file=os.environ["HEADRACE_PASSWORD_FILE"]'
    if ways.tls_ca:
        login += f", tls_ca={ways.tls_ca!r}"
    return f"""\
# pip install headrace
{"import os" + chr(10) * 2 if ways.user else ""}from headrace import Client

with Client({ways.bootstrap!r}{login}) as client:
    client.publish({ways.topic!r}, {{"text": "hello"}}).result(30)
    for message in client.subscribe({ways.topic!r}, follow=False):
        print(message.json())
"""


def _python(ways: Ways) -> str:
    config = {"bootstrap.servers": repr(ways.bootstrap)}
    if ways.user:
        config["security.protocol"] = repr("SASL_SSL" if ways.tls_ca else "SASL_PLAINTEXT")
        config["sasl.mechanism"] = repr("SCRAM-SHA-512")
        config["sasl.username"] = repr(ways.user)
        config["sasl.password"] = 'os.environ["HEADRACE_PASSWORD"]'
    elif ways.tls_ca:
        config["security.protocol"] = repr("SSL")
    if ways.tls_ca:
        config["ssl.ca.location"] = repr(ways.tls_ca)
    lines = "".join(f'    "{name}": {value},\n' for name, value in config.items())
    return f"""\
# pip install confluent-kafka
{"import os" + chr(10) * 2 if ways.user else ""}from confluent_kafka import Consumer, Producer

config = {{
{lines}}}

producer = Producer(config)
producer.produce({ways.topic!r}, b"hello")
producer.flush(30)

consumer = Consumer({{**config, "group.id": "first", "auto.offset.reset": "earliest"}})
consumer.subscribe([{ways.topic!r}])
message = None
while message is None or message.error():
    message = consumer.poll(1)
print(message.value().decode())
consumer.close()
"""


def _javascript(ways: Ways) -> str:
    brokers = ", ".join(f'"{address.strip()}"' for address in ways.bootstrap.split(","))
    login = ""
    if ways.tls_ca:
        login += f',\n  ssl: {{ ca: [require("fs").readFileSync("{ways.tls_ca}")] }}'
    if ways.user:
        login += f',\n  sasl: {{ mechanism: "scram-sha-512", username: "{ways.user}", password: process.env.HEADRACE_PASSWORD }}'
    return f"""\
// npm install kafkajs
const {{ Kafka }} = require("kafkajs")

const kafka = new Kafka({{
  clientId: "first",
  brokers: [{brokers}]{login},
}})

const main = async () => {{
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({{ topic: "{ways.topic}", messages: [{{ value: "hello" }}] }})
  await producer.disconnect()

  const consumer = kafka.consumer({{ groupId: "first" }})
  await consumer.connect()
  await consumer.subscribe({{ topic: "{ways.topic}", fromBeginning: true }})
  await new Promise((done) =>
    consumer.run({{ eachMessage: async ({{ message }}) => {{ console.log(message.value.toString()); done() }} }}))
  await consumer.disconnect()
}}

main()
"""


def _boto3(ways: Ways) -> str:
    keys = (
        "# Keys are made with: headrace key create; boto3 finds them in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.\n"
        if ways.user
        else ""
    )
    login = "" if ways.user else '\n    aws_access_key_id="any",\n    aws_secret_access_key="any",'
    trust = f"\n    verify={ways.tls_ca!r}," if ways.tls_ca else ""
    return f"""\
# pip install boto3
{keys}import boto3

sqs = boto3.client(
    "sqs",
    endpoint_url={ways.url!r},
    region_name="us-east-1",{login}{trust}
)
url = sqs.create_queue(QueueName={ways.topic!r})["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="hello")
for message in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]:
    print(message["Body"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
"""


def _curl(ways: Ways) -> str:
    login = f' -u {ways.user}:"$HEADRACE_PASSWORD"' if ways.user else ""
    trust = f" --cacert {ways.tls_ca}" if ways.tls_ca else ""
    curl = f"curl -sSf{login}{trust}"
    return f"""\
#!/bin/sh
set -e
{curl} -d hello {ways.url}/topics/{ways.topic}/records
{curl} '{ways.url}/topics/{ways.topic}/records?offset=-1'
"""


PROGRAMS = {
    "sdk": ClientProgram("first.py", _sdk),
    "python": ClientProgram("first.py", _python),
    "javascript": ClientProgram("first.js", _javascript),
    "boto3": ClientProgram("first.py", _boto3),
    "curl": ClientProgram("first.sh", _curl),
}
