import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/**
 * Apache's reader: three lines (writer's schema, reader's schema, a value in hex), and one line back, the
 * value as the reader's schema has it, in hex; or "error " and why.
 */
class Resolve {
  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line; (line = in.readLine()) != null; ) {
      String wanted = in.readLine(), hex = in.readLine();
      try {
        Schema writer = new Schema.Parser().parse(line), reader = new Schema.Parser().parse(wanted);
        byte[] data = HexFormat.of().parseHex(hex);
        Object value =
            new GenericDatumReader<Object>(writer, reader)
                .read(null, DecoderFactory.get().binaryDecoder(data, null));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<Object>(reader).write(value, encoder);
        encoder.flush();
        System.out.println(HexFormat.of().formatHex(out.toByteArray()));
      } catch (Exception | StackOverflowError error) {
        System.out.println("error " + String.valueOf(error).replaceAll("\\s+", " "));
      }
      System.out.flush();
    }
  }
}
