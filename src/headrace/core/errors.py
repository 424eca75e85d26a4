"""Kernel: ONE table of errors. Kafka code, HTTP status, SQS code, whether to retry, and a hint for a person.

The value of a kind is its Kafka code, so the Kafka door needs no translation. Kinds Kafka does not know have
codes from 1000 up and leave the Kafka door as UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ErrorKind(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    # Headrace's own, unknown to Kafka.
    QUEUE_DOES_NOT_EXIST = 1000
    QUEUE_ALREADY_EXISTS = 1001
    QUEUE_DELETED_RECENTLY = 1002
    RECEIPT_HANDLE_IS_INVALID = 1003
    MESSAGE_NOT_INFLIGHT = 1004
    PURGE_QUEUE_IN_PROGRESS = 1005
    OVER_LIMIT = 1006
    INVALID_ATTRIBUTE_NAME = 1007
    INVALID_ATTRIBUTE_VALUE = 1008
    INVALID_MESSAGE_CONTENTS = 1009
    EMPTY_BATCH = 1010
    TOO_MANY_BATCH_ENTRIES = 1011
    BATCH_ENTRY_IDS_NOT_DISTINCT = 1012
    BATCH_TOO_LONG = 1013
    INVALID_BATCH_ENTRY_ID = 1014
    INVALID_PARAMETER = 1015
    MISSING_PARAMETER = 1016
    INVALID_ACTION = 1017
    ACCESS_DENIED = 1018
    UNSUPPORTED_OPERATION = 1019
    SUBSCRIPTION_NOT_FOUND = 1020
    SCHEDULE_NOT_FOUND = 1021
    INVALID_FILTER = 1022
    NOT_FOUND = 1023
    CONFLICT = 1024
    PAYLOAD_TOO_LARGE = 1025
    MISSING_AUTHENTICATION = 1026
    INVALID_ACCESS_KEY = 1027
    SIGNATURE_MISMATCH = 1028

    @classmethod
    def _missing_(cls, value: object) -> ErrorKind | None:
        """A newer broker may know errors that we do not (F17): whoever reads an answer hears that something went wrong, and goes on."""
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None

    @property
    def kafka_code(self) -> int:
        return -1 if self >= 1000 else int(self)

    @property
    def info(self) -> ErrorInfo:
        return _INFO.get(self, _DEFAULT)


class ErrorInfo(NamedTuple):
    http_status: int = 400
    retriable: bool = False
    sqs_type: str = "InvalidParameterValue"
    """The shape name in `__type`."""
    sqs_code: str = "InvalidParameterValue"
    """The legacy code in `x-amzn-query-error`, which user code in the wild compares."""
    hint: str = ""


class HeadraceError(Exception):
    """A refusal that has to cross a call stack (drivers and doors); machines return Rejected instead."""

    def __init__(self, kind: ErrorKind, detail: str = "", hint: str = "") -> None:
        super().__init__(detail or kind.name)
        self.kind = kind
        self.detail = detail or kind.name.lower().replace("_", " ")
        self.hint = hint or kind.info.hint


class Unknown(HeadraceError):
    """There is no such name in the cluster's metadata, as far as this broker has heard. What another broker has just made may
    not have come here yet, so the metadata is read again before anybody is told (F34, broker/latest.py)."""


class NameTaken(HeadraceError):
    """The name is in use, as far as this broker has heard: another one may have just answered that it was deleted."""


_SQS = "AWS.SimpleQueueService."
_DEFAULT = ErrorInfo()
_RETRY = ErrorInfo(503, True, "ServiceUnavailable", "ServiceUnavailable", "Try again in a moment.")

_INFO: dict[ErrorKind, ErrorInfo] = {
    ErrorKind.UNKNOWN_SERVER_ERROR: ErrorInfo(500, False, "InternalError", "InternalError", "This is a bug; `headrace debug bundle` collects what we need to fix it."),
    ErrorKind.UNKNOWN_TOPIC_OR_PARTITION: ErrorInfo(404, True, "QueueDoesNotExist", _SQS + "NonExistentQueue", "Create it with: headrace topic create NAME"),
    ErrorKind.UNKNOWN_TOPIC_ID: ErrorInfo(404, True, "QueueDoesNotExist", _SQS + "NonExistentQueue", "The topic was deleted or created again."),
    ErrorKind.LEADER_NOT_AVAILABLE: _RETRY,
    ErrorKind.NOT_LEADER_OR_FOLLOWER: _RETRY,
    ErrorKind.REQUEST_TIMED_OUT: ErrorInfo(504, True, "ServiceUnavailable", "ServiceUnavailable", "The write may or may not have happened; an idempotent producer retries safely."),
    ErrorKind.BROKER_NOT_AVAILABLE: _RETRY,
    ErrorKind.NETWORK_EXCEPTION: _RETRY,
    ErrorKind.FENCED_LEADER_EPOCH: _RETRY,
    ErrorKind.UNKNOWN_LEADER_EPOCH: _RETRY,
    ErrorKind.REPLICA_NOT_AVAILABLE: _RETRY,
    ErrorKind.MESSAGE_TOO_LARGE: ErrorInfo(413, hint="Raise max.message.bytes on the topic, or send a smaller batch."),
    ErrorKind.RECORD_LIST_TOO_LARGE: ErrorInfo(413, hint="The batch is larger than a segment (segment.bytes)."),
    ErrorKind.CORRUPT_MESSAGE: ErrorInfo(400, True),
    ErrorKind.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
    ErrorKind.COORDINATOR_NOT_AVAILABLE: _RETRY,
    ErrorKind.NOT_COORDINATOR: _RETRY,
    ErrorKind.NOT_CONTROLLER: _RETRY,
    ErrorKind.NOT_ENOUGH_REPLICAS: _RETRY._replace(hint="Fewer in-sync replicas than min.insync.replicas; bring a broker back."),
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _RETRY,
    ErrorKind.TOPIC_ALREADY_EXISTS: ErrorInfo(409, sqs_type="QueueNameExists", sqs_code="QueueAlreadyExists"),
    ErrorKind.INVALID_TOPIC_EXCEPTION: ErrorInfo(hint="A topic name is 1 to 249 characters out of a-z A-Z 0-9 . _ -"),
    ErrorKind.INVALID_CONFIG: ErrorInfo(hint="`headrace topic describe NAME` lists every config with its default."),
    ErrorKind.KAFKA_STORAGE_ERROR: ErrorInfo(503, True, "ServiceUnavailable", "ServiceUnavailable", "The disk failed or is full; see the broker's log and `headrace doctor`."),
    ErrorKind.GROUP_ID_NOT_FOUND: ErrorInfo(404, hint="`headrace group list` shows the groups there are."),
    ErrorKind.NON_EMPTY_GROUP: ErrorInfo(409, hint="Stop the group's consumers first."),
    ErrorKind.OFFSET_OUT_OF_RANGE: ErrorInfo(416, hint="The offset was deleted by retention or is not written yet."),
    ErrorKind.SASL_AUTHENTICATION_FAILED: ErrorInfo(401),
    ErrorKind.TOPIC_AUTHORIZATION_FAILED: ErrorInfo(403, sqs_type="AccessDenied", sqs_code="AccessDenied"),
    ErrorKind.GROUP_AUTHORIZATION_FAILED: ErrorInfo(403, sqs_type="AccessDenied", sqs_code="AccessDenied"),
    ErrorKind.CLUSTER_AUTHORIZATION_FAILED: ErrorInfo(403, sqs_type="AccessDenied", sqs_code="AccessDenied"),
    ErrorKind.THROTTLING_QUOTA_EXCEEDED: ErrorInfo(429, True, "RequestThrottled", "RequestThrottled"),
    ErrorKind.CONCURRENT_TRANSACTIONS: _RETRY,
    ErrorKind.OFFSET_NOT_AVAILABLE: _RETRY,
    ErrorKind.UNSTABLE_OFFSET_COMMIT: _RETRY,
    ErrorKind.RESOURCE_NOT_FOUND: ErrorInfo(404, sqs_type="ResourceNotFoundException", sqs_code="ResourceNotFoundException"),
    ErrorKind.QUEUE_DOES_NOT_EXIST: ErrorInfo(400, False, "QueueDoesNotExist", _SQS + "NonExistentQueue", "Create it with: headrace queue create NAME"),
    ErrorKind.QUEUE_ALREADY_EXISTS: ErrorInfo(400, False, "QueueNameExists", "QueueAlreadyExists"),
    ErrorKind.QUEUE_DELETED_RECENTLY: ErrorInfo(400, False, "QueueDeletedRecently", _SQS + "QueueDeletedRecently", "Wait 60 seconds after deleting a queue."),
    ErrorKind.RECEIPT_HANDLE_IS_INVALID: ErrorInfo(400, False, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", "Use the handle of the latest receive."),
    ErrorKind.MESSAGE_NOT_INFLIGHT: ErrorInfo(400, False, "MessageNotInflight", _SQS + "MessageNotInflight"),
    ErrorKind.PURGE_QUEUE_IN_PROGRESS: ErrorInfo(403, False, "PurgeQueueInProgress", _SQS + "PurgeQueueInProgress"),
    ErrorKind.OVER_LIMIT: ErrorInfo(403, False, "OverLimit", "OverLimit"),
    ErrorKind.INVALID_ATTRIBUTE_NAME: ErrorInfo(400, False, "InvalidAttributeName", "InvalidAttributeName"),
    ErrorKind.INVALID_ATTRIBUTE_VALUE: ErrorInfo(400, False, "InvalidAttributeValue", "InvalidAttributeValue"),
    ErrorKind.INVALID_MESSAGE_CONTENTS: ErrorInfo(400, False, "InvalidMessageContents", "InvalidMessageContents"),
    ErrorKind.EMPTY_BATCH: ErrorInfo(400, False, "EmptyBatchRequest", _SQS + "EmptyBatchRequest"),
    ErrorKind.TOO_MANY_BATCH_ENTRIES: ErrorInfo(400, False, "TooManyEntriesInBatchRequest", _SQS + "TooManyEntriesInBatchRequest"),
    ErrorKind.BATCH_ENTRY_IDS_NOT_DISTINCT: ErrorInfo(400, False, "BatchEntryIdsNotDistinct", _SQS + "BatchEntryIdsNotDistinct"),
    ErrorKind.BATCH_TOO_LONG: ErrorInfo(400, False, "BatchRequestTooLong", _SQS + "BatchRequestTooLong"),
    ErrorKind.INVALID_BATCH_ENTRY_ID: ErrorInfo(400, False, "InvalidBatchEntryId", _SQS + "InvalidBatchEntryId"),
    ErrorKind.INVALID_PARAMETER: ErrorInfo(),
    ErrorKind.MISSING_PARAMETER: ErrorInfo(400, False, "MissingParameter", "MissingParameter"),
    ErrorKind.INVALID_ACTION: ErrorInfo(400, False, "InvalidAction", "InvalidAction"),
    ErrorKind.ACCESS_DENIED: ErrorInfo(403, False, "AccessDenied", "AccessDenied"),
    ErrorKind.UNSUPPORTED_OPERATION: ErrorInfo(400, False, "UnsupportedOperation", _SQS + "UnsupportedOperation"),
    ErrorKind.SUBSCRIPTION_NOT_FOUND: ErrorInfo(404),
    ErrorKind.SCHEDULE_NOT_FOUND: ErrorInfo(404),
    ErrorKind.INVALID_FILTER: ErrorInfo(422),
    ErrorKind.NOT_FOUND: ErrorInfo(404),
    ErrorKind.CONFLICT: ErrorInfo(409),
    ErrorKind.PAYLOAD_TOO_LARGE: ErrorInfo(413),
    ErrorKind.MISSING_AUTHENTICATION: ErrorInfo(403, False, "MissingAuthenticationToken", "MissingAuthenticationToken"),
    ErrorKind.INVALID_ACCESS_KEY: ErrorInfo(403, False, "InvalidClientTokenId", "InvalidClientTokenId"),
    ErrorKind.SIGNATURE_MISMATCH: ErrorInfo(403, False, "SignatureDoesNotMatch", "SignatureDoesNotMatch"),
}  # fmt: skip
