"""Door: SQS. The JSON protocol that boto3 speaks, on the same queues every other door serves."""
