// F37: which APIs a broker of this Kafka offers, and at which versions: one line each.
// Usage: java -cp <kafka-clients and what it needs> Apis.java

import org.apache.kafka.common.protocol.ApiKeys;

public class Apis {
    public static void main(String[] args) {
        for (ApiKeys api : ApiKeys.brokerApis()) {
            System.out.println("API " + api.id + " " + api.oldestVersion() + " " + api.latestVersion(false));
        }
    }
}
