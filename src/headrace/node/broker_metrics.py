"""Driver: the broker's numbers under the names dashboards already know (kafka_exporter and the usual JMX ones).

Counters are plain integers on the hot path; everything is put into families only when somebody scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.broker.services import Services
from headrace.core.ids import is_internal
from headrace.core.measures import Family, FamilyKind, Sample
from headrace.kafka.server import KafkaServer
from headrace.wire.api import API


class MetricSeries:
    """One metric name while its series are gathered."""

    def __init__(self, kind: FamilyKind, name: str, text: str) -> None:
        self._kind: FamilyKind = kind
        self._name = name
        self._text = text
        self._samples: list[Sample] = []

    def add(self, value: float, **labels: str) -> MetricSeries:
        self._samples.append(Sample(tuple(labels.items()), value))
        return self

    @property
    def family(self) -> Family:
        return Family(self._name, self._kind, self._text, self._samples)


def gauge(name: str, text: str, *values: float) -> MetricSeries:
    return _series("gauge", name, text, values)


def counter(name: str, text: str, *values: float) -> MetricSeries:
    return _series("counter", name, text, values)


def _series(kind: FamilyKind, name: str, text: str, values: tuple[float, ...]) -> MetricSeries:
    series = MetricSeries(kind, name, text)
    for value in values:
        series.add(value)
    return series


class BrokerMetrics:
    def __init__(self, services: Services, kafka: KafkaServer) -> None:
        self._services = services
        self._broker = services.broker
        self._kafka = kafka

    def collect(self) -> Iterable[Family]:
        for part in (
            self._cluster,
            self._partitions,
            self._groups,
            self._queues,
            self._views,
            self._broker_totals,
        ):
            for series in part():
                yield series.family

    def _cluster(self) -> Iterator[MetricSeries]:
        image = self._broker.image
        nodes = image.live_brokers()
        yield gauge("kafka_brokers", "Brokers in the cluster.", len(nodes))
        info = gauge("kafka_broker_info", "Each broker and its address.")
        for node in nodes:
            address = f"{node.registration.host}:{node.registration.port}"
            info.add(1, id=str(node.id), address=address)
        yield info
        counts = gauge("kafka_topic_partitions", "Partitions of the topic.")
        for topic in image.topics.values():
            counts.add(len(topic.partitions), topic=topic.name)
        yield counts
        active = image.controller is not None and image.controller.broker_id == self._broker.node_id
        yield gauge(
            "kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.", int(active)
        )

    def _partitions(self) -> Iterator[MetricSeries]:
        names = {
            "current_offset": "High watermark.",
            "oldest_offset": "First offset there is.",
            "leader": "Broker that leads.",
            "leader_is_preferred": "1 when the preferred replica leads.",
            "replicas": "Replicas.",
            "in_sync_replica": "Replicas in sync.",
            "under_replicated_partition": "1 when a replica is not in sync.",
        }
        families = {name: gauge(f"kafka_topic_partition_{name}", text) for name, text in names.items()}
        under = 0
        for topic, number, state in self._broker.image.all_partitions():
            labels = {"topic": topic.name, "partition": str(number)}
            lacking = len(state.isr) < len(state.replicas)
            under += lacking
            families["leader"].add(state.leader, **labels)
            families["leader_is_preferred"].add(int(state.leader == state.replicas[0]), **labels)
            families["replicas"].add(len(state.replicas), **labels)
            families["in_sync_replica"].add(len(state.isr), **labels)
            families["under_replicated_partition"].add(int(lacking), **labels)
            partition = self._broker.partitions.get((topic.name, number))
            if partition is not None:
                families["current_offset"].add(partition.high_watermark, **labels)
                families["oldest_offset"].add(partition.log.start_offset, **labels)
        yield from families.values()
        yield gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions with a replica out of sync.",
            under,
        )

    def _groups(self) -> Iterator[MetricSeries]:
        offsets = gauge("kafka_consumergroup_current_offset", "Committed offset of the group.")
        sums = gauge(
            "kafka_consumergroup_current_offset_sum", "Committed offsets over all partitions of the topic."
        )
        lags = gauge("kafka_consumergroup_lag", "Records the group has not committed yet.")
        lag_sums = gauge("kafka_consumergroup_lag_sum", "Lag over all partitions of the topic.")
        members = gauge("kafka_consumergroup_members", "Members of the group.")
        for group in self._services.groups.overview():
            members.add(group.members, consumergroup=group.group_id)
            totals: dict[str, list[int]] = {}
            for topic, number, offset in group.offsets:
                labels = {"consumergroup": group.group_id, "topic": topic, "partition": str(number)}
                partition = self._broker.partitions.get((topic, number))
                if partition is not None:
                    lag = max(0, partition.high_watermark - offset)
                else:
                    lag = self._services.views.lag(topic, number, offset) or 0
                offsets.add(offset, **labels)
                lags.add(lag, **labels)
                total = totals.setdefault(topic, [0, 0])
                total[0] += offset
                total[1] += lag
            for topic, (offset, lag) in totals.items():
                sums.add(offset, consumergroup=group.group_id, topic=topic)
                lag_sums.add(lag, consumergroup=group.group_id, topic=topic)
        yield from (offsets, sums, lags, lag_sums, members)

    def _queues(self) -> Iterator[MetricSeries]:
        """Under our own names, and under those that a CloudWatch exporter gives to SQS."""
        rooms = self._services.queue_rooms
        messages = gauge("mq_queue_messages", "Messages of the queue by state.")
        oldest = gauge("mq_queue_oldest_age_seconds", "Age of the oldest message that is not done.")
        dead = gauge("mq_dlq_messages", "Messages in queues that others use for their dead letters.")
        prefix = "aws_sqs_approximate_"
        visible = gauge(f"{prefix}number_of_messages_visible_average", "Messages ready to be received.")
        taken = gauge(f"{prefix}number_of_messages_not_visible_average", "Messages in flight.")
        delayed = gauge(f"{prefix}number_of_messages_delayed_average", "Messages that wait for their time.")
        age = gauge(f"{prefix}age_of_oldest_message_maximum", "Age of the oldest message, in seconds.")
        sent = counter("aws_sqs_number_of_messages_sent_sum", "Messages sent.")
        graveyards = {spec.queue_config.dead_letter for spec in rooms.catalog.all()}
        for spec in rooms.catalog.all():
            counts = [count for _, count in rooms.local.counts(spec)]
            ready, in_flight, waiting = (
                sum(count.visible for count in counts),
                sum(count.in_flight for count in counts),
                sum(count.delayed for count in counts),
            )
            for state, value in (("ready", ready), ("inflight", in_flight), ("delayed", waiting)):
                messages.add(value, queue=spec.name, state=state)
            seconds = rooms.local.oldest_age_ms(spec) / 1000
            oldest.add(seconds, queue=spec.name)
            if spec.name in graveyards:
                dead.add(ready + in_flight + waiting, queue=spec.name)
            label = {"dimension_QueueName": spec.name}
            visible.add(ready, **label)
            taken.add(in_flight, **label)
            delayed.add(waiting, **label)
            age.add(seconds, **label)
            held = (
                self._broker.partitions.get((source.topic, source.partition))
                for source in rooms.layouts.of(spec).sources
            )
            sent.add(sum(partition.messages_in for partition in held if partition is not None), **label)
        yield from (messages, oldest, dead, visible, taken, delayed, age, sent)
        yield counter("mq_redrive_messages_total", "Messages moved by move tasks.", rooms.moves.moved_total)

    def _views(self) -> Iterator[MetricSeries]:
        views = self._services.views
        done = views.scanner
        yield counter(
            "mq_view_filtered_bytes_total", "Bytes of sources that were filtered.", done.source_bytes
        )
        yield counter("mq_view_matched_records_total", "Records that matched while filtering.", done.matched)
        yield counter("mq_view_skipped_batches_total", "Batches the tag index spared.", done.skipped_batches)
        yield gauge("mq_view_cache_bytes", "What views remember of what matched.", views.budget.used_bytes)

    def _broker_totals(self) -> Iterator[MetricSeries]:
        prefix = "kafka_server_brokertopicmetrics_"
        messages = counter(f"{prefix}messagesin_total", "Records appended.")
        bytes_in = counter(f"{prefix}bytesin_total", "Bytes appended.")
        bytes_out = counter(f"{prefix}bytesout_total", "Bytes read by clients.")
        unreadable = counter(
            "mq_unreadable_batches_total",
            "Times that a reader inside the broker has stepped over a batch that it could not open.",
        )
        totals: dict[str, list[int]] = {}
        leaders = segments = 0
        for (topic, _), partition in self._broker.partitions.items():
            leaders += partition.is_leader
            segments += partition.log.segment_count
            if is_internal(topic):
                continue
            total = totals.setdefault(topic, [0, 0, 0, 0])
            total[0] += partition.messages_in
            total[1] += partition.bytes_in
            total[2] += partition.bytes_out
            total[3] += partition.unreadable_batches
        for topic, (count, size_in, size_out, left_out) in totals.items():
            messages.add(count, topic=topic)
            bytes_in.add(size_in, topic=topic)
            bytes_out.add(size_out, topic=topic)
            unreadable.add(left_out, topic=topic)
        broker, failures = self._broker, self._services.failures
        unreadable.add(failures.unreadable_elsewhere, topic="")
        yield from (messages, bytes_in, bytes_out, unreadable)
        yield counter(f"{prefix}failedproducerequests_total", "Batches refused.", failures.produces)
        yield counter(
            f"{prefix}failedfetchrequests_total", "Fetches of a partition refused.", failures.fetches
        )
        manager = "kafka_server_replicamanager_"
        yield gauge(f"{manager}partitioncount", "Replicas on this broker.", len(broker.partitions))
        yield gauge(f"{manager}leadercount", "Partitions this broker leads.", leaders)
        yield gauge(
            f"{manager}offlinereplicacount", "Replicas that can't be opened.", len(broker.replicas.offline)
        )
        requests = counter("mq_requests_total", "Requests by API.")
        for key, count in self._kafka.dispatcher.requests.items():
            if count:
                requests.add(count, protocol="kafka", api=API[key].name)
        yield requests
        stats = self._kafka.stats()
        yield gauge("mq_connections", "Open connections.").add(stats["connections"], protocol="kafka")
        yield gauge(
            "mq_request_bytes_held",
            "Request bytes in memory; above a bound no socket is read.",
            stats["held_bytes"],
        )
        yield gauge("mq_log_segments", "Segments of the logs on this broker.", segments)
        yield counter("mq_flush_rounds_total", "Group commits.", broker.flusher.rounds)
