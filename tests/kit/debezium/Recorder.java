import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/** Writes each change event as a line: {"key": ..., "value": ...}. Arguments: file, then setting=value. */
public class Recorder {
  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    for (int n = 1; n < arguments.length; n++) {
      int equals = arguments[n].indexOf('=');
      settings.setProperty(arguments[n].substring(0, equals), arguments[n].substring(equals + 1));
    }
    PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[0]), StandardCharsets.UTF_8));
    DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
        .using(settings)
        .notifying(event -> {
          out.println("{\"key\": " + event.key() + ", \"value\": " + event.value() + "}");
          out.flush();
        })
        .build();
    Thread running = new Thread(engine);
    running.setDaemon(true);
    running.start();
    System.in.read(); // until the caller closes it
    engine.close();
    System.exit(0);
  }
}
