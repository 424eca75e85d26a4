"""Kernel: a bound for everything that could grow (X8-X13, style rule 11)."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

MAX_FRAME_BYTES = 100 * MIB
"""Largest request frame; Kafka's socket.request.max.bytes (X8)."""

MAX_REQUEST_BYTES = 4 * MIB
"""Largest frame of any API but Produce (A3)."""

MAX_FIRST_FRAME_BYTES = 64 * KIB
"""Largest frame of a connection that has yet to say who it is, where that is needed (X8)."""
LOGIN_MS = 10_000
"""How long it may take to say so (X7)."""

MAX_REQUEST_ENTRIES = 10_000
"""Array elements and tagged fields of one request, nested ones included, unless its handler says MOST_ENTRIES (A3)."""

MAX_REQUEST_PARTITIONS = 5_000
"""Partitions in one Produce or Fetch (A3)."""

WIDE_REQUEST_PARTITIONS = 500
"""A Produce or Fetch of more partitions is worked on in slices; a smaller one in one go, which costs less (A3)."""

MAX_OFFSETS_AT_ONCE = 2_000
"""Offsets that a group's shard decides about in one go; a request with more is put to it in several commands (A3)."""

MAX_NAMES_DESCRIBED = 2_000
"""Groups in one description and topics in one deletion: each entry costs more than a look into a table (A3)."""

SLICE_ENTRIES = 200
SLICE_MS = 5
"""Work on a long list gives others their turn after this many entries, or this much time (A3)."""

MAX_INFLIGHT_REQUEST_BYTES = 256 * MIB
"""All request bytes held at once; above it sockets are not read (X9)."""

MAX_PARKED_REQUESTS_PER_CONNECTION = 1_000
MAX_CONNECTIONS = 10_000
MAX_CONNECTIONS_PER_IP = 5_000
MAX_CONNECTIONS_PER_USER = 5_000
IDLE_CONNECTION_MS = 10 * 60 * 1000
PARTIAL_FRAME_MS = 30 * 1000
WRITE_STALL_MS = 30 * 1000

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
MAX_DECOMPRESSED_BYTES = 128 * MIB
"""Absolute cap on what one batch may inflate to (X11)."""

MAX_DECOMPRESSION_RATIO = 1_000
ALWAYS_DECOMPRESSED_BYTES = 16 * MIB
"""What the smallest batch may inflate to, whatever its ratio."""

MAX_FETCH_BYTES = 55 * MIB
MAX_OFFSET_METADATA_BYTES = 4096
MAX_GROUP_MEMBERS = 10_000
MAX_SHARE_SESSIONS = 2_000
MAX_TAGGED_FIELDS = 1_000
MAX_FETCH_SESSIONS = 1_000
MAX_FETCH_SESSION_PARTITIONS = 100_000
"""Partitions that all fetch sessions of a broker remember together: some 300 bytes each (A4)."""

MAX_SHARE_SESSION_PARTITIONS = 5_000
"""Partitions of one share session (A4)."""

MAX_STREAMS_TASKS = 10_000
"""Tasks of one streams group: what one run of its assignor has to hand out."""

MAX_PROTOCOL_METADATA_BYTES = 64 * KIB
"""What a member of a classic group may say with each protocol it offers; a KIP-848 member with its subscription;
a streams application with its topology (A4)."""

MAX_MEMBER_PROTOCOLS = 16
MAX_GROUP_METADATA_BYTES = 8 * MIB
"""Metadata of all members of a group, and its assignments (A4)."""

MAX_NAME_BYTES = KIB
"""Of group ids and transactional ids (A4)."""

MAX_QUOTA_ENTITIES = 5_000
"""Users and clients with quotas of their own, in a cluster (A4)."""

MAX_NEW_PARTITIONS_PER_REQUEST = 5_000
"""Partitions that one CreateTopics or CreatePartitions makes (A4)."""

MAX_PARTITIONS_PER_BROKER = 10_000
"""Replicas that a cluster has for each live broker (A4)."""

AUTO_CREATED_TOPICS = 500
AUTO_CREATED_PER_SECOND = 20
"""Topics that come to be because a client named them: so many at once per address, and so many a second after that (A4)."""
AUTO_CREATED_PER_REQUEST = 100
"""… and so many in one request, which is answered when they are there (A3)."""
MAX_PARTITIONS_PER_TOPIC = 10_000
