// Section 6: nothing is there yet. Three cards with commands that work as they stand.
import { useState } from 'preact/hooks';
import { http, kafka } from '../state/places.ts';
import { Command } from '../parts/ui.tsx';

type Recipe = [string, string];

function recipes(kafka: string, http: string): Record<'Publish' | 'Queue' | 'Spark', { lead: string; all: Recipe[] }> {
  const port = kafka.split(':').pop();
  const other = port === '9092' ? '' : ` -b ${kafka}`;
  return {
    Publish: {
      lead: 'A topic is a log that any number of readers follow, each at its own pace. It is made when you write to it.',
      all: [
        ['headrace', `headrace topic produce hello 'first message'${other}`],
        ['curl', `curl ${http}/topics/hello/records -d 'first message'`],
        ['Python', `from headrace import Client\n\nwith Client("${kafka}") as client:\n    client.publish("hello", "first message").result()`],
        ['kcat', `echo 'first message' | kcat -b ${kafka} -t hello -P`],
        ['Java', `Properties p = new Properties();\np.put("bootstrap.servers", "${kafka}");\ntry (var producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {\n  producer.send(new ProducerRecord<>("hello", "first message")).get();\n}`],
      ],
    },
    Queue: {
      lead: 'A queue gives each message to one worker, again when it fails, and to the dead letters when it fails too often.',
      all: [
        ['curl', `curl ${http}/queues/jobs/messages -d 'resize photo 7'\ncurl -X POST ${http}/queues/jobs/receive`],
        ['headrace', `headrace queue send jobs 'resize photo 7'${http.endsWith(':9324') ? '' : ` --url ${http}`}`],
        ['boto3', `import boto3\n\nsqs = boto3.client("sqs", endpoint_url="${http}", region_name="us-east-1",\n                   aws_access_key_id="any", aws_secret_access_key="any")\nurl = sqs.create_queue(QueueName="jobs")["QueueUrl"]\nsqs.send_message(QueueUrl=url, MessageBody="resize photo 7")`],
        ['Celery', `app = Celery(broker="sqs://any:any@${http.replace('http://', '')}//")\napp.conf.broker_transport_options = {"is_secure": False, "region": "us-east-1"}`],
      ],
    },
    Spark: {
      lead: 'PySpark reads topics as tables and streams, and writes them exactly once. No jar is needed.',
      all: [
        ['read', `from headrace.spark import register\n\nregister(spark)\n(spark.read.format("headrace")\n   .option("bootstrap", "${kafka}")\n   .option("subscribe", "hello")\n   .load().show())`],
        ['stream', `(spark.readStream.format("headrace")\n   .option("bootstrap", "${kafka}")\n   .option("subscribe", "hello")\n   .load()\n   .writeStream.format("console").start())`],
      ],
    },
  };
}

function Card({ name, lead, all }: { name: string; lead: string; all: Recipe[] }) {
  const [at, setAt] = useState(0);
  return (
    <section class="card">
      <h2>{name}</h2>
      <p class="soft">{lead}</p>
      <div class="choice" role="group" aria-label={`${name} with`}>
        {all.map(([words], place) => (
          <button key={words} class="small" aria-pressed={place === at} onClick={() => setAt(place)}>{words}</button>
        ))}
      </div>
      <Command text={all[at]![1]} what={`the ${all[at]![0]} example`} />
    </section>
  );
}

export function FirstRun() {
  const all = recipes(kafka(), http());
  return (
    <div class="stack">
      <div class="cards">
        {Object.entries(all).map(([name, card]) => <Card key={name} name={name} {...card} />)}
      </div>
      <p class="soft row" role="status"><span class="pulse" aria-hidden="true" /> Waiting for your first message …</p>
    </div>
  );
}
