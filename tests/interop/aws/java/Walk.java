// A queue from its creation to its end with the AWS SDK for Java: argument 1 is the address, 2 a name of its own.
import java.net.URI;
import java.util.List;
import java.util.Map;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.*;

public class Walk {
    static void check(boolean good, String what) {
        if (!good) throw new AssertionError(what);
    }

    public static void main(String[] args) {
        String name = args[1];
        try (SqsClient sqs = SqsClient.builder().endpointOverride(URI.create(args[0])).region(Region.US_EAST_1)
                .httpClient(UrlConnectionHttpClient.create())
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("a", "s"))).build()) {
            String dead = sqs.createQueue(r -> r.queueName(name + "-dead")).queueUrl();
            String arn = sqs.getQueueAttributes(r -> r.queueUrl(dead).attributeNames(QueueAttributeName.QUEUE_ARN))
                    .attributes().get(QueueAttributeName.QUEUE_ARN);
            String url = sqs.createQueue(r -> r.queueName(name).tags(Map.of("team", "billing")).attributes(Map.of(
                    QueueAttributeName.VISIBILITY_TIMEOUT, "60",
                    QueueAttributeName.REDRIVE_POLICY, "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":1}"))).queueUrl();
            check(sqs.listQueueTags(r -> r.queueUrl(url)).tags().equals(Map.of("team", "billing")), "tags");
            // The SDK compares the checksums of bodies and attributes by itself.
            String id = sqs.sendMessage(r -> r.queueUrl(url).messageBody("hëllo").messageAttributes(Map.of(
                    "colour", MessageAttributeValue.builder().dataType("String").stringValue("red").build(),
                    "bytes", MessageAttributeValue.builder().dataType("Binary")
                            .binaryValue(SdkBytes.fromByteArray(new byte[] {0, (byte) 255})).build()))).messageId();
            Message got = sqs.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(10).messageAttributeNames("All")
                    .visibilityTimeout(0)).messages().get(0);
            check(got.messageId().equals(id) && got.body().equals("hëllo"), "receive");
            check(got.messageAttributes().get("bytes").binaryValue().asByteArray()[1] == (byte) 255, "attributes");
            check(sqs.receiveMessage(r -> r.queueUrl(url)).messages().isEmpty(), "a dead letter");
            sqs.startMessageMoveTask(r -> r.sourceArn(arn));
            Message back = sqs.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(20)).messages().get(0);
            sqs.changeMessageVisibility(r -> r.queueUrl(url).receiptHandle(back.receiptHandle()).visibilityTimeout(30));
            sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle(back.receiptHandle()));
            var batch = List.of(1, 2, 3).stream().map(n -> SendMessageBatchRequestEntry.builder().id("e" + n)
                    .messageBody("" + n).build()).toList();
            check(sqs.sendMessageBatch(r -> r.queueUrl(url).entries(batch)).successful().size() == 3, "batch");
            String fifo = sqs.createQueue(r -> r.queueName(name + ".fifo")
                    .attributes(Map.of(QueueAttributeName.FIFO_QUEUE, "true"))).queueUrl();
            for (int n = 0; n < 2; n++)
                sqs.sendMessage(r -> r.queueUrl(fifo).messageBody("once").messageGroupId("g").messageDeduplicationId("d"));
            check(sqs.receiveMessage(r -> r.queueUrl(fifo).maxNumberOfMessages(10).waitTimeSeconds(5)).messages().size() == 1, "deduplication");
            long found = sqs.listQueuesPaginator(r -> r.queueNamePrefix(name).maxResults(2)).queueUrls().stream().count();
            check(found == 3, "pages");
            sqs.purgeQueue(r -> r.queueUrl(url));
            sqs.deleteQueue(r -> r.queueUrl(url));
            try {
                sqs.getQueueUrl(r -> r.queueName(name));
                throw new AssertionError("it is gone");
            } catch (QueueDoesNotExistException gone) {
                System.out.println("SQS OK");
            }
        }
    }
}
