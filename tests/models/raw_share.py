"""A share consumer made of single requests: one partition, one member."""

from __future__ import annotations

from raw_client import RawClient

from headrace.core.ids import ZERO_UUID
from headrace.records.batch import scan
from headrace.records.read import read_records
from headrace.wire.api import ApiKey
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)

BROKER_RESOURCE, GROUP_RESOURCE = 4, 32
RECORD_LIMIT = 1
ACCEPT = 1


def topic_id(raw: RawClient, name: str) -> bytes:
    request = MetadataRequest([MetadataRequestTopic(ZERO_UUID, name)])
    found: bytes = raw.call(ApiKey.METADATA, 12, request).topics[0].topic_id
    return found


def set_group_config(raw: RawClient, group: str, **configs: str) -> int:
    """The error code."""
    return set_config(raw, GROUP_RESOURCE, group, **configs)


def set_config(raw: RawClient, kind: int, resource: str, **configs: str) -> int:
    entries = [AlterableConfig(name.replace("_", "."), 0, value) for name, value in configs.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, resource, entries)])
    code: int = raw.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code
    return code


class RawSharer:
    def __init__(self, raw: RawClient, group: str, topic: str, member: str = "member") -> None:
        self._raw = raw
        self._group = group
        self._member = member
        self._topic_id = topic_id(raw, topic)
        self._epoch = 0
        self._held: list[tuple[int, int]] = []
        self.lock_ms = 0

    def fetch(
        self, max_records: int = 500, *, version: int = 2, mode: int = 0, wait_ms: int = 500
    ) -> list[tuple[int, bytes | None]]:
        """What was acquired, offset and value; what was acquired before is accepted on the way."""
        acks = [AcknowledgementBatch(first, last, [ACCEPT]) for first, last in self._held]
        part = FetchPartition(partition_index=0, acknowledgement_batches=acks)
        request = ShareFetchRequest(
            self._group, self._member, self._epoch, wait_ms, 1, 1 << 20, max_records, max_records, mode,
            topics=[FetchTopic(self._topic_id, [part])],
        )  # fmt: skip
        answer = self._raw.call(ApiKey.SHARE_FETCH, version, request)
        assert answer.error_code == 0, answer
        self._epoch += 1
        self.lock_ms = answer.acquisition_lock_timeout_ms
        self._held = []
        found: list[tuple[int, bytes | None]] = []
        for row in (row for topic in answer.responses for row in topic.partitions):
            assert (row.error_code, row.acknowledge_error_code) == (0, 0), row
            self._held += [(run.first_offset, run.last_offset) for run in row.acquired_records]
            records = {
                record.offset: record.value
                for at, header in scan(row.records or b"")
                if not header.is_control
                for record in read_records(memoryview(row.records)[at : at + header.size])
            }
            for first, last in self._held:
                found += [(offset, records.get(offset)) for offset in range(first, last + 1)]
        return found
