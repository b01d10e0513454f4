package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Hides nothing: there is nothing to hide without tokens. */
public class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public Seq<?> redactParams(Seq<?> settings) {
        return settings;
    }
}
