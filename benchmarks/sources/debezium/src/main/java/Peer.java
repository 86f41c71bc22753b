import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Debezium's engine, as small as it can be: `Peer PROPERTIES`. It says on standard output
 *
 * <pre>
 *   reading                       when it streams
 *   COUNT NANOSECONDS             after each batch: changes so far, and when (of CLOCK_MONOTONIC)
 *   at SENT RECEIVED              with `stamps=1`: the column `sent_us` of each change, and the time
 * </pre>
 *
 * and ends when standard input does.
 */
public final class Peer {
  private static long count;

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    try (FileReader file = new FileReader(arguments[0])) {
      properties.load(file);
    }
    boolean stamps = "1".equals(properties.remove("stamps"));
    DebeziumEngine<ChangeEvent<SourceRecord, SourceRecord>> engine =
        DebeziumEngine.create(Connect.class)
            .using(properties)
            .using(
                new DebeziumEngine.ConnectorCallback() {
                  @Override
                  public void pollingStarted() {
                    say("reading");
                  }
                })
            .notifying((events, committer) -> take(events, committer, stamps))
            .build();
    ExecutorService thread = Executors.newSingleThreadExecutor();
    thread.execute(engine);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    while (input.readLine() != null) {}
    engine.close();
    System.exit(0);
  }

  private static void take(
      List<ChangeEvent<SourceRecord, SourceRecord>> events,
      DebeziumEngine.RecordCommitter<ChangeEvent<SourceRecord, SourceRecord>> committer,
      boolean stamps)
      throws InterruptedException {
    long now = micros();
    List<Long> sent = new ArrayList<>();
    for (ChangeEvent<SourceRecord, SourceRecord> event : events) {
      if (event.value().value() instanceof Struct value && value.schema().field("op") != null) {
        count++;
        if (stamps && value.getStruct("after") != null) {
          sent.add(value.getStruct("after").getInt64("sent_us"));
        }
      }
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
    for (long each : sent) {
      say("at " + each + " " + now);
    }
    say(count + " " + System.nanoTime());
  }

  /** Wall-clock microseconds. */
  private static long micros() {
    java.time.Instant now = java.time.Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
  }

  private static void say(String line) {
    synchronized (System.out) {
      System.out.println(line);
      System.out.flush();
    }
  }
}
