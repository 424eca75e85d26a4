# A queue from its creation to its end with version 1 of the AWS SDK for Ruby (2016), which speaks the Query protocol.
# Arguments: the address, a name of its own.
require "aws"
require "uri"

def check(good, what)
  raise what unless good
end

at, name = URI.parse(ARGV[0]), ARGV[1]
AWS.config(access_key_id: "a", secret_access_key: "s", use_ssl: false, sqs_endpoint: at.host, sqs_port: at.port)
sqs = AWS::SQS.new
dead = sqs.queues.create("#{name}-dead")
queue = sqs.queues.create(name, visibility_timeout: 60)
check(sqs.queues.named(name).url == queue.url, "url")
check(queue.visibility_timeout == 60, "attributes")
queue.client.set_queue_attributes(queue_url: queue.url, attributes: {
  "RedrivePolicy" => "{\"deadLetterTargetArn\":\"#{dead.arn}\",\"maxReceiveCount\":1}",
})
check(queue.receive_message.nil?, "an empty result")
# The SDK compares the checksums of bodies by itself.
sent = queue.client.send_message(queue_url: queue.url, message_body: "hëllo & <good>", message_attributes: {
  "colour" => { data_type: "String", string_value: "red" },
})
got = queue.client.receive_message(
  queue_url: queue.url, wait_time_seconds: 10, visibility_timeout: 0, message_attribute_names: ["All"], attribute_names: ["All"]
)[:messages].first
check(got[:message_id] == sent[:message_id] && got[:body] == "hëllo & <good>", "receive")
check(got[:message_attributes]["colour"][:string_value] == "red", "message attributes")
check(got[:attributes]["ApproximateReceiveCount"] == "1", "system attributes")
check(queue.receive_message.nil?, "a dead letter")
letter = dead.receive_message(wait_time_seconds: 10)
letter.visibility_timeout = 30
letter.delete
check(queue.batch_send("one", "two", "three").length == 3, "batch")
queue.receive_message(limit: 10, wait_time_seconds: 10).each(&:delete)
check(sqs.queues.with_prefix(name).map(&:url).sort == [queue.url, dead.url].sort, "names")
begin
  queue.client.delete_message(queue_url: queue.url, receipt_handle: "no receipt")
  raise "it is none"
rescue AWS::SQS::Errors::ReceiptHandleIsInvalid
end
queue.delete
begin
  sqs.queues.named(name)
  raise "it is gone"
rescue AWS::SQS::Errors::NonExistentQueue
  puts "SQS OK"
end
