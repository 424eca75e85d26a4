// A queue from its creation to its end with the AWS SDK for Go: argument 1 is the address, 2 a name of its own.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func need[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(good bool, what string) {
	if !good {
		panic(what)
	}
}

func main() {
	name, ctx := os.Args[2], context.Background()
	client := sqs.New(sqs.Options{
		BaseEndpoint: aws.String(os.Args[1]),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("a", "s", ""),
	})
	dead := need(client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(name + "-dead")})).QueueUrl
	arn := need(client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: dead, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})).Attributes["QueueArn"]
	url := need(client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String(name),
		Attributes: map[string]string{
			"VisibilityTimeout": "60",
			"RedrivePolicy":     fmt.Sprintf(`{"deadLetterTargetArn":"%s","maxReceiveCount":1}`, arn),
		},
		Tags: map[string]string{"team": "billing"}})).QueueUrl
	check(need(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags["team"] == "billing", "tags")
	sent := need(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: aws.String("hëllo"),
		MessageAttributes: map[string]types.MessageAttributeValue{
			"colour": {DataType: aws.String("String"), StringValue: aws.String("red")},
			"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}},
		}}))
	got := need(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, WaitTimeSeconds: 10, MessageAttributeNames: []string{"All"}, VisibilityTimeout: 1})).Messages
	check(len(got) == 1 && *got[0].MessageId == *sent.MessageId && *got[0].Body == "hëllo", "receive")
	check(bytes.Equal(got[0].MessageAttributes["bytes"].BinaryValue, []byte{0, 255}), "attributes")
	need(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: got[0].ReceiptHandle, VisibilityTimeout: 0}))
	check(len(need(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url})).Messages) == 0, "a dead letter")
	need(client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(arn)}))
	back := need(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20})).Messages
	check(len(back) == 1, "moved back")
	need(client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: back[0].ReceiptHandle}))
	var entries []types.SendMessageBatchRequestEntry
	for n := range 3 {
		entries = append(entries, types.SendMessageBatchRequestEntry{
			Id: aws.String(fmt.Sprint("e", n)), MessageBody: aws.String(fmt.Sprint(n))})
	}
	check(len(need(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries})).Successful) == 3, "batch")
	fifo := need(client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String(name + ".fifo"), Attributes: map[string]string{"FifoQueue": "true"}})).QueueUrl
	for range 2 {
		need(client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: fifo, MessageBody: aws.String("once"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("d")}))
	}
	once := need(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: fifo, MaxNumberOfMessages: 10, WaitTimeSeconds: 5})).Messages
	check(len(once) == 1, "deduplication")
	found := 0
	pages := sqs.NewListQueuesPaginator(client, &sqs.ListQueuesInput{QueueNamePrefix: aws.String(name), MaxResults: aws.Int32(2)})
	for pages.HasMorePages() {
		found += len(need(pages.NextPage(ctx)).QueueUrls)
	}
	check(found == 3, "pages")
	need(client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url}))
	need(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(name)})
	var gone *types.QueueDoesNotExist
	check(errors.As(err, &gone), "the error has its type")
	fmt.Println("SQS OK")
}
