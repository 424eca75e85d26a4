// What a Java application does with Confluent's serialiser for Avro: name it in the configs of a producer and a consumer, and send objects.
// Usage: java -cp <the jar that test_java_registry.py names> Serialisers.java <bootstrap> <registry> <topic>

import io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import io.confluent.kafka.serializers.subject.TopicRecordNameStrategy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SerializationException;

public class Serialisers {
    static final Schema ORDER = order("");
    static final Schema WITH_NOTE = order(", {\"name\": \"note\", \"type\": \"string\", \"default\": \"\"}");
    static final Schema WITHOUT_DEFAULT = order(", {\"name\": \"more\", \"type\": \"string\"}");

    static String bootstrap;
    static String registry;
    static String topic;

    public static void main(String[] args) {
        bootstrap = args[0];
        registry = args[1];
        topic = args[2];
        registersByItself();
        refusesWhatReadersCouldNotRead();
        asksBeforeItRegisters();
        takesTheLatest();
        namesSubjectsByRecord();
        reads(List.of("7 from Python", "0", "1 from Java", "2 ", "3 by record"));
        System.out.println("SERIALISERS OK");
    }

    static void registersByItself() {
        try (KafkaProducer<Object, Object> producer = producer(Map.of())) {
            send(producer, record(ORDER, 0, null));
            send(producer, record(WITH_NOTE, 1, "from Java"));
        }
    }

    static void refusesWhatReadersCouldNotRead() {
        try (KafkaProducer<Object, Object> producer = producer(Map.of())) {
            GenericRecord order = record(WITHOUT_DEFAULT, 9, null);
            order.put("more", "of it");
            refused(409, producer, order);
        }
    }

    static void asksBeforeItRegisters() {
        try (KafkaProducer<Object, Object> producer = producer(Map.of("auto.register.schemas", "false"))) {
            refused(404, producer, record(order(", {\"name\": \"never\", \"type\": \"string\", \"default\": \"\"}"), 9, null));
        }
    }

    static void takesTheLatest() {
        Map<String, Object> latest = Map.of("auto.register.schemas", "false", "use.latest.version", "true");
        try (KafkaProducer<Object, Object> producer = producer(latest)) {
            send(producer, record(WITH_NOTE, 2, ""));
        }
    }

    static void namesSubjectsByRecord() {
        Map<String, Object> strategy = Map.of("value.subject.name.strategy", TopicRecordNameStrategy.class.getName());
        try (KafkaProducer<Object, Object> producer = producer(strategy)) {
            send(producer, record(WITH_NOTE, 3, "by record"));
        }
    }

    static void reads(List<String> expected) {
        Map<String, Object> configs = configs();
        configs.put("key.deserializer", KafkaAvroDeserializer.class.getName());
        configs.put("value.deserializer", KafkaAvroDeserializer.class.getName());
        configs.put("group.id", "java-serialisers");
        configs.put("auto.offset.reset", "earliest");
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<Object, GenericRecord> consumer = new KafkaConsumer<>(configs)) {
            consumer.subscribe(List.of(topic));
            while (found.size() < expected.size()) {
                for (ConsumerRecord<Object, GenericRecord> one : consumer.poll(Duration.ofSeconds(1))) {
                    GenericRecord order = one.value();
                    boolean noted = order.getSchema().getField("note") != null;
                    found.add(order.get("id") + (noted ? " " + order.get("note") : ""));
                    check(one.key() == null || one.key().toString().equals("key"), "a key in Avro");
                }
            }
        }
        check(found.equals(expected), "read " + found);
    }

    static KafkaProducer<Object, Object> producer(Map<String, Object> more) {
        Map<String, Object> configs = configs();
        configs.put("key.serializer", KafkaAvroSerializer.class.getName());
        configs.put("value.serializer", KafkaAvroSerializer.class.getName());
        configs.putAll(more);
        return new KafkaProducer<>(configs);
    }

    static Map<String, Object> configs() {
        return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "schema.registry.url", registry));
    }

    static void send(KafkaProducer<Object, Object> producer, GenericRecord order) {
        try {
            producer.send(new ProducerRecord<>(topic, "key", order)).get();
        } catch (Exception failure) {
            throw new AssertionError("not sent", failure);
        }
    }

    static void refused(int status, KafkaProducer<Object, Object> producer, GenericRecord order) {
        try {
            producer.send(new ProducerRecord<>(topic, order));
        } catch (SerializationException refusal) {
            check(refusal.getCause() instanceof RestClientException, "refused by the registry, not by " + refusal.getCause());
            int answered = ((RestClientException) refusal.getCause()).getStatus();
            check(answered == status, "refused with " + answered + ", not " + status + ": " + refusal.getCause().getMessage());
            return;
        }
        check(false, "not refused with " + status);
    }

    static GenericRecord record(Schema schema, long id, String note) {
        GenericRecord order = new GenericData.Record(schema);
        order.put("id", id);
        if (schema.getField("note") != null) {
            order.put("note", note);
        }
        return order;
    }

    static Schema order(String more) {
        String fields = "{\"type\": \"record\", \"name\": \"Order\", \"fields\": [{\"name\": \"id\", \"type\": \"long\"}%s]}";
        return new Schema.Parser().parse(String.format(fields, more));
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
