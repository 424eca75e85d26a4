// A queue from its creation to its end with the AWS SDK for JavaScript: argument 1 is the address, 2 a name of its own.
import assert from "node:assert/strict";
import * as sqs from "@aws-sdk/client-sqs";

const [endpoint, name] = process.argv.slice(2);
const client = new sqs.SQSClient({ endpoint, region: "us-east-1", credentials: { accessKeyId: "a", secretAccessKey: "s" } });
const ask = (kind, input) => client.send(new sqs[`${kind}Command`](input));

const dead = (await ask("CreateQueue", { QueueName: `${name}-dead` })).QueueUrl;
const arn = (await ask("GetQueueAttributes", { QueueUrl: dead, AttributeNames: ["QueueArn"] })).Attributes.QueueArn;
const QueueUrl = (await ask("CreateQueue", {
  QueueName: name,
  Attributes: { VisibilityTimeout: "60", RedrivePolicy: JSON.stringify({ deadLetterTargetArn: arn, maxReceiveCount: 1 }) },
  tags: { team: "billing" },
})).QueueUrl;
assert.deepEqual((await ask("ListQueueTags", { QueueUrl })).Tags, { team: "billing" });
const sent = await ask("SendMessage", {
  QueueUrl,
  MessageBody: "hëllo",
  MessageAttributes: {
    colour: { DataType: "String", StringValue: "red" },
    bytes: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) },
  },
});
const got = (await ask("ReceiveMessage", {
  QueueUrl, WaitTimeSeconds: 10, MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"], VisibilityTimeout: 0,
})).Messages[0];
assert.equal(got.MessageId, sent.MessageId);
assert.equal(got.Body, "hëllo");
assert.deepEqual([...got.MessageAttributes.bytes.BinaryValue], [0, 255]);
assert.equal(got.Attributes.ApproximateReceiveCount, "1");
assert.equal((await ask("ReceiveMessage", { QueueUrl })).Messages, undefined);
const letter = (await ask("ReceiveMessage", { QueueUrl: dead, WaitTimeSeconds: 10 })).Messages[0];
assert.equal(letter.MessageId, sent.MessageId);
await ask("ChangeMessageVisibility", { QueueUrl: dead, ReceiptHandle: letter.ReceiptHandle, VisibilityTimeout: 0 });
const { TaskHandle } = await ask("StartMessageMoveTask", { SourceArn: arn });
assert.ok(TaskHandle);
const back = (await ask("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20 })).Messages[0];
await ask("DeleteMessage", { QueueUrl, ReceiptHandle: back.ReceiptHandle });
const batch = await ask("SendMessageBatch", { QueueUrl, Entries: [1, 2, 3].map((n) => ({ Id: `e${n}`, MessageBody: `${n}` })) });
assert.equal(batch.Successful.length, 3);
const three = (await ask("ReceiveMessage", { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5 })).Messages;
const deleted = await ask("DeleteMessageBatch", { QueueUrl, Entries: three.map((m, n) => ({ Id: `${n}`, ReceiptHandle: m.ReceiptHandle })) });
assert.equal(deleted.Successful.length, three.length);
const fifo = (await ask("CreateQueue", { QueueName: `${name}.fifo`, Attributes: { FifoQueue: "true" } })).QueueUrl;
for (const _ of [1, 2]) await ask("SendMessage", { QueueUrl: fifo, MessageBody: "once", MessageGroupId: "g", MessageDeduplicationId: "d" });
assert.equal((await ask("ReceiveMessage", { QueueUrl: fifo, MaxNumberOfMessages: 10, WaitTimeSeconds: 5 })).Messages.length, 1);
const pages = [];
for await (const page of sqs.paginateListQueues({ client, pageSize: 2 }, { QueueNamePrefix: name })) pages.push(...(page.QueueUrls ?? []));
assert.deepEqual(new Set(pages), new Set([dead, QueueUrl, fifo]));
await ask("PurgeQueue", { QueueUrl });
await ask("DeleteQueue", { QueueUrl });
await assert.rejects(ask("GetQueueUrl", { QueueName: name }), sqs.QueueDoesNotExist);
console.log("SQS OK");
