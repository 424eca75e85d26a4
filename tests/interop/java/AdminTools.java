// F37: what Kafka's own tools ask through the Admin client: end a transaction, list config resources, update features, move log dirs.
// Usage: java -cp <kafka-clients and what it needs> AdminTools.java <bootstrap> <topic>

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidUpdateVersionException;
import org.apache.kafka.common.errors.LogDirNotFoundException;
import org.apache.kafka.common.serialization.StringSerializer;

public class AdminTools {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            abort(admin, args[0], topic);
            Set<ConfigResource.Type> types = Set.of(ConfigResource.Type.TOPIC);
            check(admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get().stream()
                .anyMatch(found -> found.name().equals(topic)), "the topic is a config resource");
            DescribeClusterOptions rights = new DescribeClusterOptions().includeAuthorizedOperations(true);
            check(!admin.describeCluster(rights).authorizedOperations().get().isEmpty(), "authorized operations");
            FeatureUpdate same = new FeatureUpdate((short) 2, FeatureUpdate.UpgradeType.UPGRADE);
            admin.updateFeatures(Map.of("transaction.version", same), new UpdateFeaturesOptions()).all().get();
            FeatureUpdate other = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
            refused(InvalidUpdateVersionException.class, () ->
                admin.updateFeatures(Map.of("transaction.version", other), new UpdateFeaturesOptions()).all().get());
            int broker = admin.describeCluster().nodes().get().iterator().next().id();
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, broker);
            refused(LogDirNotFoundException.class, () ->
                admin.alterReplicaLogDirs(Map.of(replica, "/elsewhere")).all().get());
        }
        System.out.println("ADMIN TOOLS OK");
        System.exit(0);
    }

    /** As kafka-transactions.sh abort --start-offset does it. */
    static void abort(Admin admin, String bootstrap, String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "transactional.id", topic);
        KafkaProducer<String, String> producer = new KafkaProducer<>(configs, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "key", "left open")).get();
        ProducerState open = admin.describeProducers(List.of(partition)).partitionResult(partition).get()
            .activeProducers().get(0);
        check(open.currentTransactionStartOffset().isPresent(), "a transaction is open");
        admin.abortTransaction(new AbortTransactionSpec(partition, open.producerId(), (short) open.producerEpoch(),
            open.coordinatorEpoch().orElse(0))).all().get();
        for (ProducerState after : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            check(after.currentTransactionStartOffset().isEmpty(), "no transaction is open any more");
        }
    }

    interface Step {
        void run() throws Exception;
    }

    static void refused(Class<?> kind, Step step) throws Exception {
        try {
            step.run();
        } catch (ExecutionException problem) {
            check(kind.isInstance(problem.getCause()), kind + " expected, not " + problem.getCause());
            return;
        }
        throw new AssertionError(kind + " expected");
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
