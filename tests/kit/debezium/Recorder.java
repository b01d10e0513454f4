import io.apicurio.registry.utils.converter.avro.AvroData;
import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Writes each change event as a line: {"key": ..., "value": ...}. Arguments: file, then setting=value.
 *
 * <p>With recorder.avro=true the value has its schema, "bare" is the same event without, "avro" the same
 * as Avro in Confluent's framing; a line {"id": ..., "schema": ...} goes before the first event of a
 * schema.
 */
public class Recorder {
  private static final Map<Schema, Integer> IDS = new HashMap<>();

  /** One for each schema: it keeps schemas by their names, and an altered table's has the old name. */
  private static final Map<org.apache.kafka.connect.data.Schema, AvroData> AVRO = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    for (int n = 1; n < arguments.length; n++) {
      int equals = arguments[n].indexOf('=');
      settings.setProperty(arguments[n].substring(0, equals), arguments[n].substring(equals + 1));
    }
    boolean all = Boolean.parseBoolean(settings.getProperty("recorder.avro"));
    boolean wrapped = !"false".equals(settings.getProperty("value.converter.schemas.enable"));
    JsonConverter value = converter(wrapped, false), bare = converter(false, false);
    JsonConverter key = converter(wrapped, true);
    PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[0]), StandardCharsets.UTF_8));
    DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine = DebeziumEngine.create(Connect.class)
        .using(settings)
        .notifying(event -> {
          SourceRecord record = event.value();
          String line = "{\"key\": " + text(key.fromConnectData(record.topic(), record.keySchema(), record.key()));
          line += ", \"value\": " + text(value.fromConnectData(record.topic(), record.valueSchema(), record.value()));
          if (all && record.value() != null) {
            line += ", \"bare\": " + text(bare.fromConnectData(record.topic(), record.valueSchema(), record.value()));
            line += ", \"avro\": \"" + Base64.getEncoder().encodeToString(framed(record, out)) + "\"";
          }
          out.println(line + "}");
          out.flush();
        })
        .using((success, message, error) -> {
          if (!success) {
            System.err.println(message);
            if (error != null) {
              error.printStackTrace();
            }
          }
        })
        .build();
    Thread running = new Thread(engine);
    running.setDaemon(true);
    running.start();
    System.in.read(); // until the caller closes it
    engine.close();
    System.exit(0);
  }

  private static JsonConverter converter(boolean wrapped, boolean isKey) {
    JsonConverter converter = new JsonConverter();
    converter.configure(Map.of("schemas.enable", String.valueOf(wrapped)), isKey);
    return converter;
  }

  private static String text(byte[] json) {
    return json == null ? "null" : new String(json, StandardCharsets.UTF_8);
  }

  private static byte[] framed(SourceRecord record, PrintWriter out) {
    AvroData avro = AVRO.computeIfAbsent(record.valueSchema(), schema -> new AvroData(10));
    Schema schema = avro.fromConnectSchema(record.valueSchema());
    Integer id = IDS.get(schema);
    if (id == null) {
      id = IDS.size() + 1;
      IDS.put(schema, id);
      out.println("{\"id\": " + id + ", \"schema\": " + schema + "}");
    }
    Object datum = avro.fromConnectData(record.valueSchema(), record.value());
    try {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      new DataOutputStream(bytes).writeByte(0);
      bytes.write(ByteBuffer.allocate(4).putInt(id).array());
      BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(bytes, null);
      new GenericDatumWriter<Object>(schema, GenericData.get()).write(datum, encoder);
      return bytes.toByteArray();
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }
}
