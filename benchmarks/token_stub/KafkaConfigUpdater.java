package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/** What Spark's Kafka sink needs of its token provider where no delegation tokens are used. */
public class KafkaConfigUpdater {
    private final Map<String, Object> settings = new HashMap<>();

    public KafkaConfigUpdater(
            String module, scala.collection.immutable.Map<String, Object> settings) {
        Iterator<Tuple2<String, Object>> left = settings.iterator();
        while (left.hasNext()) {
            Tuple2<String, Object> next = left.next();
            this.settings.put(next._1(), next._2());
        }
    }

    public KafkaConfigUpdater set(String key, Object value) {
        settings.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        settings.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return settings;
    }
}
