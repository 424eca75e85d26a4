// F25 (KAFKA-18464): a producer of transaction version 2 that changes its mind at once after a commit stays alive.
// Usage: java -cp <kafka-clients and what it needs> QuickAbort.java <bootstrap> <topic>

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class QuickAbort {
    static final int ROUNDS = 200;
    static final int PARTITIONS = 16;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        Map<String, Object> configs = Map.of("bootstrap.servers", args[0], "transactional.id", topic, "linger.ms", 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int round = 0; round < ROUNDS; round++) {
                producer.beginTransaction();
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, "key", "kept"));
                }
                producer.commitTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "key", "changed my mind"));
                producer.abortTransaction();
            }
        }
        System.out.println("QUICK ABORT OK");
    }
}
