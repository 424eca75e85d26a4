"""Machine: the one engine behind SQS queues, Kafka share groups (KIP-932), REST pull and webhook push. Pure."""
