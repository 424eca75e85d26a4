// What a Java application of any year does first: make a topic, write to it, in a transaction too, read it in a group.
// Usage: java -cp <kafka-clients and what it needs> RoundTrip.java <bootstrap> <topic>

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class RoundTrip {
    static final int RECORDS = 300;

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            check(admin.describeCluster().nodes().get().size() == 1, "one broker");
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            check(!admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().isEmpty(), "configs");
        }
        Map<String, Object> plain = Map.of("bootstrap.servers", bootstrap, "enable.idempotence", true, "compression.type", "lz4");
        send(topic, "plain", plain, null);
        Map<String, Object> transactional = Map.of("bootstrap.servers", bootstrap, "transactional.id", topic);
        send(topic, "aborted", transactional, false);
        send(topic, "committed", transactional, true);
        Set<String> seen = read(bootstrap, topic);
        Set<String> expected = new HashSet<>();
        for (String kind : List.of("plain", "committed")) {
            for (int i = 0; i < RECORDS; i++) {
                expected.add(kind + "-" + i);
            }
        }
        check(seen.equals(expected), "each record once, none of the aborted ones; seen " + seen.size());
        System.out.println("ROUND TRIP OK");
    }

    /** commit: null outside of a transaction. */
    static void send(String topic, String kind, Map<String, Object> configs, Boolean commit) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            if (commit != null) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (int i = 0; i < RECORDS; i++) {
                producer.send(new ProducerRecord<>(topic, "key" + i, kind + "-" + i));
            }
            producer.flush();
            if (commit != null && commit) {
                producer.commitTransaction();
            } else if (commit != null) {
                producer.abortTransaction();
            }
        }
    }

    static Set<String> read(String bootstrap, String topic) {
        Map<String, Object> configs = Map.of(
            "bootstrap.servers", bootstrap, "group.id", topic, "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        Set<String> seen = new HashSet<>();
        long deadline = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (seen.size() < 2 * RECORDS && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    check(seen.add(record.value()), "read twice: " + record.value());
                }
            }
            consumer.commitSync();
        }
        return seen;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
