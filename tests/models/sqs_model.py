"""SQS's service model, as botocore carries it, and what its tests know beside it: legacy codes, statuses, values that are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.session

MODEL = botocore.session.get_session().get_service_model("sqs")
DOCS = (Path(__file__).parents[2] / "docs" / "sqs.md").read_text()
LEGACY = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{name: f"AWS.SimpleQueueService.{name}" for name in (
        "QueueDeletedRecently", "BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest",
        "InvalidBatchEntryId", "MessageNotInflight", "TooManyEntriesInBatchRequest", "UnsupportedOperation",
        "PurgeQueueInProgress",
    )},
}  # fmt: skip
"""What programs compare, where it is not the name of the shape."""
STATUS = {
    "PurgeQueueInProgress": 403,
    "OverLimit": 403,
    "ResourceNotFoundException": 404,
    "RequestThrottled": 429,
}
NEVER = {
    "InvalidAddress", "InvalidSecurity", "InvalidIdFormat", "KmsAccessDenied", "KmsDisabled",
    "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired", "KmsThrottled",
}  # fmt: skip
"""Errors that are never sent; docs/sqs.md says why."""
GOOD: dict[str, Any] = {
    "QueueUrl": "model", "QueueName": "model", "Label": "l", "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage"],
    "TaskHandle": "x", "ReceiptHandle": "x", "VisibilityTimeout": 5, "Attributes": {"VisibilityTimeout": "30"},
    "SourceArn": "arn:aws:sqs:us-east-1:000000000000:model", "MessageBody": "x", "Tags": {"a": "b"}, "TagKeys": ["a"],
    "Entries": [{"Id": "a", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 5}],
}  # fmt: skip
QUERY = {
    "AWSAccountIds": "AWSAccountId", "Actions": "ActionName", "TagKeys": "TagKey", "Attributes": "Attribute", "Tags": "Tag",
}  # fmt: skip
"""What the Query protocol calls them; newer models have forgotten it."""


def flat(action: str, request: dict[str, Any]) -> dict[str, str]:
    """As SDKs before 2023 write it."""
    found: dict[str, str] = {}
    for name, value in request.items():
        base = f"{action}RequestEntry" if name == "Entries" else QUERY.get(name, name)
        if isinstance(value, list):
            for number, item in enumerate(value, 1):
                parts = item if isinstance(item, dict) else {"": item}
                found |= {f"{base}.{number}.{part}".rstrip("."): str(text) for part, text in parts.items()}
        elif isinstance(value, dict):
            key = "Key" if name == "Tags" else "Name"
            for number, (inner, text) in enumerate(value.items(), 1):
                found |= {f"{base}.{number}.{key}": inner, f"{base}.{number}.Value": text}
        else:
            found[name] = str(value)
    return found
