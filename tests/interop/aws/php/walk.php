<?php
// A queue from its creation to its end with AsyncAws 1.7 for PHP (2022), which speaks the Query protocol.
// Arguments: the address, a name of its own.
require "AsyncAws/Sqs/autoload.php";

use AsyncAws\Core\Exception\Http\HttpException;
use AsyncAws\Sqs\SqsClient;

function check(bool $good, string $what): void
{
    if (!$good) {
        throw new Exception($what);
    }
}

[, $at, $name] = $argv;
$sqs = new SqsClient(["endpoint" => $at, "region" => "us-east-1", "accessKeyId" => "a", "accessKeySecret" => "s"]);
$dead = $sqs->createQueue(["QueueName" => "$name-dead"])->getQueueUrl();
$arn = $sqs->getQueueAttributes(["QueueUrl" => $dead, "AttributeNames" => ["QueueArn"]])->getAttributes()["QueueArn"];
$policy = json_encode(["deadLetterTargetArn" => $arn, "maxReceiveCount" => 1]);
$url = $sqs->createQueue(["QueueName" => $name, "tags" => ["team" => "billing"], "Attributes" => [
    "VisibilityTimeout" => "60", "RedrivePolicy" => $policy,
]])->getQueueUrl();
check($sqs->getQueueUrl(["QueueName" => $name])->getQueueUrl() === $url, "url");
check($sqs->queueExists(["QueueName" => $name])->isSuccess(), "it is there");
check($sqs->receiveMessage(["QueueUrl" => $url])->getMessages() === [], "an empty result");
$id = $sqs->sendMessage(["QueueUrl" => $url, "MessageBody" => "hëllo & <good>", "MessageAttributes" => [
    "colour" => ["DataType" => "String", "StringValue" => "red"],
    "bytes" => ["DataType" => "Binary", "BinaryValue" => "\x00\xff"],
]])->getMessageId();
[$got] = $sqs->receiveMessage(["QueueUrl" => $url, "WaitTimeSeconds" => 10, "VisibilityTimeout" => 0,
    "MessageAttributeNames" => ["All"], "AttributeNames" => ["All"]])->getMessages();
check($got->getMessageId() === $id && $got->getBody() === "hëllo & <good>", "receive");
check($got->getMD5OfBody() === md5("hëllo & <good>"), "checksum");
check($got->getMessageAttributes()["bytes"]->getBinaryValue() === "\x00\xff", "message attributes");
check($got->getAttributes()["ApproximateReceiveCount"] === "1", "system attributes");
check($sqs->receiveMessage(["QueueUrl" => $url])->getMessages() === [], "a dead letter");
[$letter] = $sqs->receiveMessage(["QueueUrl" => $dead, "WaitTimeSeconds" => 10])->getMessages();
$held = ["QueueUrl" => $dead, "ReceiptHandle" => $letter->getReceiptHandle()];
$sqs->changeMessageVisibility([...$held, "VisibilityTimeout" => 30])->resolve();
$sqs->deleteMessage($held)->resolve();
$sent = $sqs->sendMessageBatch(["QueueUrl" => $url, "Entries" => [
    ["Id" => "a", "MessageBody" => "1"], ["Id" => "b", "MessageBody" => "2"], ["Id" => "c", "MessageBody" => "\x01"],
]]);
check(count($sent->getSuccessful()) === 2, "batch");
check($sent->getFailed()[0]->getCode() === "InvalidMessageContents", "what failed of it");
$fifo = $sqs->createQueue(["QueueName" => "$name.fifo", "Attributes" => ["FifoQueue" => "true"]])->getQueueUrl();
for ($n = 0; $n < 2; $n++) {
    $sqs->sendMessage(["QueueUrl" => $fifo, "MessageBody" => "once", "MessageGroupId" => "g", "MessageDeduplicationId" => "d"])
        ->resolve();
}
$once = $sqs->receiveMessage(["QueueUrl" => $fifo, "MaxNumberOfMessages" => 10, "WaitTimeSeconds" => 5])->getMessages();
check(count($once) === 1, "deduplication");
check(count(iterator_to_array($sqs->listQueues(["QueueNamePrefix" => $name])->getQueueUrls())) === 3, "names");
$sqs->purgeQueue(["QueueUrl" => $url])->resolve();
$sqs->deleteQueue(["QueueUrl" => $url])->resolve();
try {
    $sqs->getQueueUrl(["QueueName" => $name])->resolve();
    throw new Exception("it is gone");
} catch (HttpException $gone) {
    check($gone->getAwsCode() === "AWS.SimpleQueueService.NonExistentQueue", $gone->getMessage());
    print("SQS OK\n");
}
