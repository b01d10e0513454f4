import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints the records of a topic that a reader with read_committed gets, to the last stable offset. */
public final class CommittedReader {
    /** Arguments: bootstrap servers, topic. A line has partition, offset and value, with tabs between. */
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            List<TopicPartition> partitions = consumer.partitionsFor(arguments[1]).stream()
                .map(one -> new TopicPartition(one.topic(), one.partition()))
                .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        System.out.printf("%d\t%d\t%s%n", record.partition(), record.offset(), record.value());
                    }
                }
            }
        }
    }
}
