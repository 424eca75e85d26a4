"""Codec: the table of APIs: key, name and messages.

Which versions the broker serves is said by each handler (`kafka/handlers/`, VERSIONS), which versions the codec speaks by
the messages (`codec.versions`). Rows without a handler are not advertised; they serve our own clients.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from headrace.wire.fetch import FetchRequest
from headrace.wire.fetch_response import FetchResponse
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from headrace.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from headrace.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from headrace.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from headrace.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from headrace.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headrace.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from headrace.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from headrace.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from headrace.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from headrace.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from headrace.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from headrace.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from headrace.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headrace.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from headrace.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from headrace.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headrace.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from headrace.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from headrace.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from headrace.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.wire.messages.metadata import MetadataRequest, MetadataResponse
from headrace.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from headrace.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headrace.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from headrace.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from headrace.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from headrace.wire.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from headrace.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from headrace.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from headrace.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from headrace.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from headrace.wire.produce import ProduceRequest, ProduceResponse
from headrace.wire.schema import MESSAGES


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiSpec(NamedTuple):
    key: ApiKey
    name: str
    request: type[Any]
    response: type[Any]
    flexible_from: int
    """First version with compact types, tagged fields and the longer headers."""


def _api(key: ApiKey, request: type[Any], response: type[Any]) -> ApiSpec:
    name = request.__name__.removesuffix("Request")
    return ApiSpec(key, name, request, response, MESSAGES[request].flexible)


API: dict[int, ApiSpec] = {
    row.key: row
    for row in (
        _api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse),
        _api(ApiKey.FETCH, FetchRequest, FetchResponse),
        _api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
        _api(ApiKey.METADATA, MetadataRequest, MetadataResponse),
        _api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
        _api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
        _api(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
        _api(ApiKey.JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
        _api(ApiKey.HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
        _api(ApiKey.LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
        _api(ApiKey.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
        _api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
        _api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
        _api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
        _api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
        _api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
        _api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
        _api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
        _api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
        _api(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse),
        _api(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse),
        _api(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse),
        _api(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse),
        _api(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse),
        _api(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse),
        _api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
        _api(ApiKey.ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
        _api(ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
        _api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
        _api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
        _api(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
        _api(ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest, CreateDelegationTokenResponse),
        _api(ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest, RenewDelegationTokenResponse),
        _api(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
        _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
        _api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
        _api(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
        _api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
        _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse),
        _api(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse),
        _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
        _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
        _api(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse),
        _api(ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest, UpdateFeaturesResponse),
        _api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
        _api(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse),
        _api(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest, UnregisterBrokerResponse),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse),
        _api(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
        _api(ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
        _api(ApiKey.SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
        _api(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest, ShareGroupDescribeResponse),
        _api(ApiKey.SHARE_FETCH, ShareFetchRequest, ShareFetchResponse),
        _api(ApiKey.SHARE_ACKNOWLEDGE, ShareAcknowledgeRequest, ShareAcknowledgeResponse),
        _api(ApiKey.STREAMS_GROUP_HEARTBEAT, StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse),
        _api(ApiKey.STREAMS_GROUP_DESCRIBE, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
        _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse),
        _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
        _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse),
    )
}  # fmt: skip

KEY_OF: dict[type, ApiKey] = {spec.request: spec.key for spec in API.values()}
"""By the class of a request."""


def request_header_version(key: int, version: int) -> int:
    return 2 if key in API and version >= API[key].flexible_from else 1


def response_header_version(key: int, version: int) -> int:
    """An ApiVersions answer always has header v0: the client does not know yet what we speak (KIP-511)."""
    if key == ApiKey.API_VERSIONS:
        return 0
    return 1 if key in API and version >= API[key].flexible_from else 0
