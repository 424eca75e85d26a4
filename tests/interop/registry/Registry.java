// What a Java application does with a schema registry: register, look up, be refused, write Avro behind an id, read what others wrote.
// Usage: java -cp <pom.xml's jars> Registry.java <bootstrap> <registry> <topic>

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.avro.shaded.org.apache.avro.io.BinaryEncoder;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;
import org.apache.flink.formats.avro.registry.confluent.ConfluentSchemaRegistryCoder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Registry {
    static final String FIELDS = "{\"type\": \"record\", \"name\": \"Order\", \"fields\": [{\"name\": \"id\", \"type\": \"long\"}%s]}";
    static final Schema ORDER = parse("");
    static final Schema WITH_NOTE = parse(", {\"name\": \"note\", \"type\": \"string\", \"default\": \"\"}");
    static final Schema WITHOUT_DEFAULT = parse(", {\"name\": \"more\", \"type\": \"string\"}");

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String topic = args[2];
        try (CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(args[1], 100)) {
            versions(client, topic + "-value");
            references(client, topic);
            configs(client, topic + "-configured");
            deletion(client, topic + "-deleted");
            messages(client, bootstrap, topic);
        }
        System.out.println("REGISTRY OK");
    }

    static void versions(CachedSchemaRegistryClient client, String subject) throws Exception {
        int first = client.register(subject, new AvroSchema(ORDER));
        check(client.register(subject, new AvroSchema(ORDER)) == first, "registered again");
        check(client.testCompatibility(subject, new AvroSchema(WITH_NOTE)), "compatible");
        check(!client.testCompatibility(subject, new AvroSchema(WITHOUT_DEFAULT)), "not compatible");
        check(!client.testCompatibilityVerbose(subject, new AvroSchema(WITHOUT_DEFAULT)).isEmpty(), "and why");
        int second = client.register(subject, new AvroSchema(WITH_NOTE));
        refused(409, () -> client.register(subject, new AvroSchema(WITHOUT_DEFAULT)));
        check(client.getAllVersions(subject).equals(List.of(1, 2)), "versions");
        check(client.getVersion(subject, new AvroSchema(WITH_NOTE)) == 2, "version of a schema");
        check(client.getLatestSchemaMetadata(subject).getId() == second, "latest");
        check(client.getSchemaMetadata(subject, 1).getId() == first, "by version");
        client.reset();
        check(client.getSchemaById(second).canonicalString().equals(new AvroSchema(WITH_NOTE).canonicalString()), "by id");
        check(client.getAllSubjectsById(first).contains(subject), "subjects of an id");
        check(client.getAllVersionsById(second).size() == 2, "versions of an id: this one, and the one of Python");
        check(client.getAllSubjects().contains(subject), "subjects");
        check(client.getAllSubjectsByPrefix(subject.substring(0, 3)).contains(subject), "subjects by prefix");
        refused(404, () -> client.getSchemaById(99_999));
        refused(404, () -> client.getLatestSchemaMetadata("nobody"));
    }

    static void references(CachedSchemaRegistryClient client, String topic) throws Exception {
        String subject = topic + "-shared";
        client.register(subject, new AvroSchema(ORDER));
        String cart = "{\"type\": \"record\", \"name\": \"Cart\", \"fields\": [{\"name\": \"order\", \"type\": \"Order\"}]}";
        List<SchemaReference> references = List.of(new SchemaReference("Order", subject, 1));
        AvroSchema carts = new AvroSchema(cart, references, Map.of("Order", ORDER.toString()), null);
        int id = client.register(topic + "-carts", carts);
        client.reset();
        AvroSchema read = (AvroSchema) client.getSchemaById(id);
        check(read.rawSchema().getField("order").schema().equals(ORDER), "a schema that refers to another");
        refused(422, () -> client.deleteSchemaVersion(subject, "1"));
    }

    static void configs(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, new AvroSchema(ORDER));
        check(client.updateCompatibility(subject, "NONE").equals("NONE"), "compatibility set");
        check(client.getCompatibility(subject).equals("NONE"), "compatibility read");
        check(client.getConfig(subject).getCompatibilityLevel().equals("NONE"), "config");
        client.register(subject, new AvroSchema(WITHOUT_DEFAULT));
        client.deleteCompatibility(subject);
        refused(404, () -> client.getCompatibility(subject));
        check(client.setMode("READONLY", subject).equals("READONLY"), "mode");
        check(client.getMode(subject).equals("READONLY"), "mode read");
        refused(422, () -> client.register(subject, new AvroSchema(WITH_NOTE)));
        client.deleteMode(subject);
    }

    static void deletion(CachedSchemaRegistryClient client, String subject) throws Exception {
        client.register(subject, new AvroSchema(ORDER));
        client.register(subject, new AvroSchema(WITH_NOTE));
        check(client.deleteSchemaVersion(subject, "1") == 1, "one version deleted");
        check(client.getAllVersions(subject).equals(List.of(2)), "versions that stay");
        check(client.getAllVersions(subject, true).equals(List.of(1, 2)), "with those deleted");
        check(client.deleteSubject(subject).equals(List.of(2)), "subject deleted");
        check(!client.getAllSubjects().contains(subject) && client.getAllSubjects(true).contains(subject), "softly");
        check(client.deleteSubject(subject, true).equals(List.of(1, 2)), "for good");
        check(!client.getAllSubjects(true).contains(subject), "gone");
    }

    static void messages(CachedSchemaRegistryClient client, String bootstrap, String topic) throws Exception {
        ConfluentSchemaRegistryCoder coder = new ConfluentSchemaRegistryCoder(topic + "-value", client);
        Map<String, Object> place = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(place, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long id = 0; id < 3; id++) {
                GenericRecord order = new GenericData.Record(WITH_NOTE);
                order.put("id", id);
                order.put("note", "from Java");
                ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                coder.writeSchema(WITH_NOTE, bytes);
                BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
                new GenericDatumWriter<GenericRecord>(WITH_NOTE).write(order, encoder);
                encoder.flush();
                producer.send(new ProducerRecord<>(topic, bytes.toByteArray())).get();
            }
        }
        List<String> notes = new ArrayList<>();
        Map<String, Object> reading = Map.of("bootstrap.servers", bootstrap, "group.id", "java", "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (notes.size() < 4) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    ByteArrayInputStream bytes = new ByteArrayInputStream(record.value());
                    Schema written = coder.readSchema(bytes);
                    GenericDatumReader<GenericRecord> reader = new GenericDatumReader<>(written, WITH_NOTE);
                    notes.add(reader.read(null, DecoderFactory.get().binaryDecoder(bytes, null)).get("note").toString());
                }
            }
        }
        check(notes.equals(List.of("from Python", "from Java", "from Java", "from Java")), "read " + notes);
    }

    static Schema parse(String more) {
        return new Schema.Parser().parse(String.format(FIELDS, more));
    }

    interface Attempt {
        void run() throws Exception;
    }

    static void refused(int status, Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (RestClientException refusal) {
            check(refusal.getStatus() == status, "refused with " + refusal.getStatus() + ", not " + status + ": " + refusal.getMessage());
            return;
        }
        check(false, "not refused with " + status);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
