import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Drains destinations with canal.client: for each line of PORT DESTINATION END BATCH it
 * makes a map of texts of each row, until one of the table END arrived, and answers with the
 * nanoseconds since the first message. See client_rivals.py.
 */
public final class ClientDrain {

  private static final long WAIT_MS = 100;
  private static final int TRIES = 300;
  private static final int PAUSE_MS = 100;

  private static long values;

  public static void main(String[] unused) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      CanalConnector connector =
          CanalConnectors.newSingleConnector(
              new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])),
              words[1], "", "");
      connect(connector);
      System.out.println(drain(connector, words[2], Integer.parseInt(words[3])));
      System.out.flush();
      connector.disconnect();
    }
    System.err.println(values + " values");
    System.exit(0);
  }

  private static void connect(CanalConnector connector) throws Exception {
    for (int left = TRIES; ; left--) {
      try {
        connector.connect();
        connector.subscribe();
        return;
      } catch (RuntimeException error) {
        if (left == 0) {
          throw error;
        }
        Thread.sleep(PAUSE_MS);
      }
    }
  }

  private static long drain(CanalConnector connector, String end, int batch)
      throws Exception {
    long firstAt = 0;
    boolean ended = false;
    while (!ended) {
      Message message = connector.getWithoutAck(batch, WAIT_MS, TimeUnit.MILLISECONDS);
      if (message.getId() == -1) {
        continue;
      }
      if (firstAt == 0) {
        firstAt = System.nanoTime();
      }
      for (CanalEntry.Entry entry : message.getEntries()) {
        if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
          read(CanalEntry.RowChange.parseFrom(entry.getStoreValue()));
          ended = ended || entry.getHeader().getTableName().equals(end);
        }
      }
      connector.ack(message.getId());
    }
    return System.nanoTime() - firstAt;
  }

  private static void read(CanalEntry.RowChange change) {
    for (CanalEntry.RowData row : change.getRowDatasList()) {
      Map<String, String> found = new HashMap<>();
      for (CanalEntry.Column column : row.getAfterColumnsList()) {
        found.put(column.getName(), column.getIsNull() ? null : column.getValue());
      }
      values += found.size();
    }
  }
}
