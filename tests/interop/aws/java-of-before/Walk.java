// A queue from its creation to its end with version 1 of the AWS SDK for Java, which speaks the Query protocol.
import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.client.builder.AwsClientBuilder.EndpointConfiguration;
import com.amazonaws.services.sqs.AmazonSQS;
import com.amazonaws.services.sqs.AmazonSQSClientBuilder;
import com.amazonaws.services.sqs.model.*;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

public class Walk {
    static void check(boolean good, String what) {
        if (!good) throw new AssertionError(what);
    }

    public static void main(String[] args) {
        String name = args[1];
        AmazonSQS sqs = AmazonSQSClientBuilder.standard()
                .withEndpointConfiguration(new EndpointConfiguration(args[0], "us-east-1"))
                .withCredentials(new AWSStaticCredentialsProvider(new BasicAWSCredentials("a", "s"))).build();
        String dead = sqs.createQueue(name + "-dead").getQueueUrl();
        String arn = sqs.getQueueAttributes(dead, List.of("QueueArn")).getAttributes().get("QueueArn");
        String url = sqs.createQueue(new CreateQueueRequest(name).withTags(Map.of("team", "billing")).withAttributes(Map.of(
                "VisibilityTimeout", "60",
                "RedrivePolicy", "{\"deadLetterTargetArn\":\"" + arn + "\",\"maxReceiveCount\":1}"))).getQueueUrl();
        check(sqs.listQueueTags(url).getTags().equals(Map.of("team", "billing")), "tags");
        check(sqs.getQueueUrl(name).getQueueUrl().equals(url), "url");
        check(sqs.listDeadLetterSourceQueues(new ListDeadLetterSourceQueuesRequest().withQueueUrl(dead)).getQueueUrls()
                .equals(List.of(url)), "sources");
        check(sqs.receiveMessage(url).getMessages().isEmpty(), "an empty result");
        // The SDK compares the checksums of bodies and attributes by itself.
        String id = sqs.sendMessage(new SendMessageRequest(url, "hëllo & <good> \"bye\"").withMessageAttributes(Map.of(
                "colour", new MessageAttributeValue().withDataType("String").withStringValue("red"),
                "bytes", new MessageAttributeValue().withDataType("Binary")
                        .withBinaryValue(ByteBuffer.wrap(new byte[] {0, (byte) 255}))))).getMessageId();
        Message got = sqs.receiveMessage(new ReceiveMessageRequest(url).withWaitTimeSeconds(10).withVisibilityTimeout(0)
                .withMessageAttributeNames("All").withAttributeNames("All")).getMessages().get(0);
        check(got.getMessageId().equals(id) && got.getBody().equals("hëllo & <good> \"bye\""), "receive");
        check(got.getMessageAttributes().get("bytes").getBinaryValue().array()[1] == (byte) 255, "attributes");
        check(got.getAttributes().get("ApproximateReceiveCount").equals("1"), "system attributes");
        check(sqs.receiveMessage(url).getMessages().isEmpty(), "a dead letter");
        sqs.startMessageMoveTask(new StartMessageMoveTaskRequest().withSourceArn(arn));
        Message back = sqs.receiveMessage(new ReceiveMessageRequest(url).withWaitTimeSeconds(20)).getMessages().get(0);
        sqs.changeMessageVisibility(url, back.getReceiptHandle(), 30);
        sqs.deleteMessage(url, back.getReceiptHandle());
        var batch = IntStream.range(0, 3).mapToObj(n -> new SendMessageBatchRequestEntry("e" + n, n == 2 ? "\u0001" : "" + n)).toList();
        var sent = sqs.sendMessageBatch(url, batch);
        check(sent.getSuccessful().size() == 2, "batch");
        check(sent.getFailed().get(0).getCode().equals("InvalidMessageContents"), "what failed of it");
        String fifo = sqs.createQueue(new CreateQueueRequest(name + ".fifo").withAttributes(Map.of("FifoQueue", "true"))).getQueueUrl();
        for (int n = 0; n < 2; n++)
            sqs.sendMessage(new SendMessageRequest(fifo, "once").withMessageGroupId("g").withMessageDeduplicationId("d"));
        check(sqs.receiveMessage(new ReceiveMessageRequest(fifo).withMaxNumberOfMessages(10).withWaitTimeSeconds(5)).getMessages()
                .size() == 1, "deduplication");
        check(sqs.listQueues(name).getQueueUrls().size() == 3, "names");
        try {
            sqs.deleteMessage(url, "no receipt");
            throw new AssertionError("it is none");
        } catch (ReceiptHandleIsInvalidException refused) {
            check(refused.getErrorType() == com.amazonaws.AmazonServiceException.ErrorType.Client, "whose fault it is");
        }
        sqs.purgeQueue(new PurgeQueueRequest(url));
        sqs.deleteQueue(url);
        try {
            sqs.getQueueUrl(name);
            throw new AssertionError("it is gone");
        } catch (QueueDoesNotExistException gone) {
            System.out.println("SQS OK");
        }
    }
}
