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


def _java(ways: Ways) -> str:
    config = {"bootstrap.servers": f'"{ways.bootstrap}"'}
    if ways.user:
        login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username=\\"{ways.user}\\" password=\\"'
        config["security.protocol"] = '"SASL_SSL"' if ways.tls_ca else '"SASL_PLAINTEXT"'
        config["sasl.mechanism"] = '"SCRAM-SHA-512"'
        config["sasl.jaas.config"] = f'"{login}" + System.getenv("HEADRACE_PASSWORD") + "\\";"'
    elif ways.tls_ca:
        config["security.protocol"] = '"SSL"'
    if ways.tls_ca:
        config["ssl.truststore.type"] = '"PEM"'
        config["ssl.truststore.location"] = f'"{ways.tls_ca}"'
    lines = "".join(f'        config.put("{name}", {value});\n' for name, value in config.items())
    return f"""\
// Maven: org.apache.kafka:kafka-clients; then: java -cp 'jars/*' First.java
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class First {{
    public static void main(String[] args) throws Exception {{
        Properties config = new Properties();
{lines}\
        config.put("group.id", "first");
        config.put("auto.offset.reset", "earliest");

        try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {{
            producer.send(new ProducerRecord<>("{ways.topic}", "hello")).get();
        }}
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {{
            consumer.subscribe(List.of("{ways.topic}"));
            ConsumerRecords<String, String> found = ConsumerRecords.empty();
            while (found.isEmpty()) {{
                found = consumer.poll(Duration.ofSeconds(1));
            }}
            found.forEach(record -> System.out.println(record.value()));
        }}
    }}
}}
"""


def _go(ways: Ways) -> str:
    seeds = ", ".join(f'"{address.strip()}"' for address in ways.bootstrap.split(","))
    imports = ['"context"', '"fmt"']
    theirs = ['"github.com/twmb/franz-go/pkg/kgo"']
    options = [f"kgo.SeedBrokers({seeds})", f'kgo.ConsumeTopics("{ways.topic}")', 'kgo.ConsumerGroup("first")',
               "kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())", "kgo.AllowAutoTopicCreation()"]  # fmt: skip
    trust = ""
    if ways.user or ways.tls_ca:
        imports.append('"os"')
    if ways.user:
        theirs.append('"github.com/twmb/franz-go/pkg/sasl/scram"')
        options.append(
            f'kgo.SASL(scram.Auth{{User: "{ways.user}", Pass: os.Getenv("HEADRACE_PASSWORD")}}.AsSha512Mechanism())'
        )
    if ways.tls_ca:
        imports += ['"crypto/tls"', '"crypto/x509"']
        options.append("kgo.DialTLSConfig(&tls.Config{RootCAs: roots})")
        trust = f"""\
	certificate, err := os.ReadFile("{ways.tls_ca}")
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
"""
    listed = "\n".join(f"\t{name}" for name in sorted(imports))
    listed += "\n\n" + "\n".join(f"\t{name}" for name in theirs)
    given = "".join(f"\t\t{option},\n" for option in options)
    return f"""\
// go mod init first && go get github.com/twmb/franz-go/pkg/kgo && go run first.go
package main

import (
{listed}
)

func check(err error) {{
	if err != nil {{
		panic(err)
	}}
}}

func main() {{
	ctx := context.Background()
{trust}\
	client, err := kgo.NewClient(
{given}\
	)
	check(err)
	defer client.Close()

	sent := &kgo.Record{{Topic: "{ways.topic}", Value: []byte("hello")}}
	check(client.ProduceSync(ctx, sent).FirstErr())
	for found := 0; found == 0; {{
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {{
			fmt.Println(string(record.Value))
			found++
		}}
	}}
	check(client.CommitUncommittedOffsets(ctx))
}}
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
    "java": ClientProgram("First.java", _java),
    "go": ClientProgram("first.go", _go),
    "boto3": ClientProgram("first.py", _boto3),
    "curl": ClientProgram("first.sh", _curl),
}
