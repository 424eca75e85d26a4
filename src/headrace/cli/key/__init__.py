"""The commands around access keys."""

HELP = "Access keys for SQS: what boto3 and the AWS command line sign with."
VERBS = {
    "create": "Make an access key, and show its secret once.",
    "list": "List access keys.",
    "delete": "Delete access keys.",
}
