import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.client.impl.ClusterCanalConnector;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A program around canal.client that does as it is asked: one command a line, of each it
 * answers in a line of JSON. See fix_interop.py.
 */
public final class ClientDriver {

  private static final int RETRIES = 300;
  private static final int RETRY_INTERVAL_MS = 100;

  private CanalConnector connector;

  public static void main(String[] unused) throws Exception {
    ClientDriver driver = new ClientDriver();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Object answer;
      try {
        answer = driver.carryOut(line.split("\t", -1));
      } catch (Exception error) {
        answer = Map.of("error", describe(error));
      }
      StringBuilder text = new StringBuilder();
      write(answer, text);
      out.println(text);
    }
    // Whatever threads the client keeps.
    System.exit(0);
  }

  private Object carryOut(String[] words) throws Exception {
    switch (words[0]) {
      case "connect":
        connector =
            CanalConnectors.newSingleConnector(
                new InetSocketAddress(words[1], Integer.parseInt(words[2])),
                words[5], words[3], words[4]);
        connector.connect();
        break;
      case "cluster":
        connectCluster(words);
        break;
      case "zookeeper":
        use(CanalConnectors.newClusterConnector(words[1], words[4], words[2], words[3]));
        break;
      case "reconnect":
        connector.disconnect();
        connector.connect();
        break;
      case "subscribe":
        if (words[1].isEmpty()) {
          connector.subscribe();
        } else {
          connector.subscribe(words[1]);
        }
        break;
      case "unsubscribe":
        connector.unsubscribe();
        break;
      case "get":
        int size = Integer.parseInt(words[1]);
        if (words[2].isEmpty()) {
          return describe(connector.getWithoutAck(size));
        }
        return describe(
            connector.getWithoutAck(size, Long.valueOf(words[2]), TimeUnit.MILLISECONDS));
      case "get_bytes":
        return tellBytes(
            connector.getWithoutAck(
                Integer.parseInt(words[1]), Long.valueOf(words[2]), TimeUnit.MILLISECONDS));
      case "take":
        return describe(connector.get(Integer.parseInt(words[1])));
      case "ack":
        connector.ack(Long.parseLong(words[1]));
        break;
      case "rollback":
        if (words[1].isEmpty()) {
          connector.rollback();
        } else {
          connector.rollback(Long.parseLong(words[1]));
        }
        break;
      case "disconnect":
        connector.disconnect();
        break;
      case "parse":
        // The sign's byte goes: the digits of an entry begin with 0a.
        return describe(CanalEntry.Entry.parseFrom(new BigInteger(words[1], 16).toByteArray()));
      default:
        throw new IllegalArgumentException("no command " + words[0]);
    }
    return Map.of();
  }

  private void connectCluster(String[] words) {
    List<InetSocketAddress> addresses = new ArrayList<>();
    for (String address : words[1].split(",")) {
      String[] parts = address.split(":");
      addresses.add(new InetSocketAddress(parts[0], Integer.parseInt(parts[1])));
    }
    use(CanalConnectors.newClusterConnector(addresses, words[4], words[2], words[3]));
  }

  private void use(CanalConnector cluster) {
    connector = cluster;
    ((ClusterCanalConnector) connector).setRetryTimes(RETRIES);
    ((ClusterCanalConnector) connector).setRetryInterval(RETRY_INTERVAL_MS);
    connector.connect();
  }

  // --- what is answered ---------------------------------------------------------------

  /** Some versions have the server's reason in the cause only. */
  private static String describe(Throwable error) {
    String text = error.toString();
    return error.getCause() == null ? text : text + ": " + describe(error.getCause());
  }

  private static Object describe(Message message) throws Exception {
    List<Object> entries = new ArrayList<>();
    for (CanalEntry.Entry entry : message.getEntries()) {
      entries.add(describe(entry));
    }
    return object("id", message.getId(), "entries", entries);
  }

  /** The entries as the protocol has them. */
  private static Object tellBytes(Message message) {
    List<Object> entries = new ArrayList<>();
    for (CanalEntry.Entry entry : message.getEntries()) {
      entries.add(Base64.getEncoder().encodeToString(entry.toByteArray()));
    }
    return object("id", message.getId(), "entries", entries);
  }

  private static Object describe(CanalEntry.Entry entry) throws Exception {
    CanalEntry.Header header = entry.getHeader();
    Map<String, Object> props = new LinkedHashMap<>();
    for (CanalEntry.Pair pair : header.getPropsList()) {
      props.put(pair.getKey(), pair.getValue());
    }
    return object(
        "type", entry.getEntryType().name(),
        "version", header.getVersion(),
        "file", header.getLogfileName(),
        "offset", header.getLogfileOffset(),
        "serverId", header.getServerId(),
        "encoding", header.getServerenCode(),
        "time", header.getExecuteTime(),
        "source", header.getSourceType().name(),
        "schema", header.getSchemaName(),
        "table", header.getTableName(),
        "length", header.getEventLength(),
        "event", header.getEventType().name(),
        "props", props,
        "content", tellContent(entry));
  }

  private static Object tellContent(CanalEntry.Entry entry) throws Exception {
    switch (entry.getEntryType()) {
      case TRANSACTIONBEGIN:
        CanalEntry.TransactionBegin begin =
            CanalEntry.TransactionBegin.parseFrom(entry.getStoreValue());
        return object(
            "threadId", begin.getThreadId(), "transactionId", begin.getTransactionId());
      case TRANSACTIONEND:
        CanalEntry.TransactionEnd end =
            CanalEntry.TransactionEnd.parseFrom(entry.getStoreValue());
        return object(
            "transactionId", end.getTransactionId(), "time", end.getExecuteTime());
      default:
        return describe(CanalEntry.RowChange.parseFrom(entry.getStoreValue()));
    }
  }

  private static Object describe(CanalEntry.RowChange change) {
    List<Object> rows = new ArrayList<>();
    for (CanalEntry.RowData row : change.getRowDatasList()) {
      rows.add(
          object(
              "before", describe(row.getBeforeColumnsList()),
              "after", describe(row.getAfterColumnsList())));
    }
    return object(
        "tableId", change.getTableId(),
        "event", change.getEventType().name(),
        "ddl", change.getIsDdl(),
        "sql", change.getSql(),
        "schema", change.getDdlSchemaName(),
        "rows", rows);
  }

  private static Object describe(List<CanalEntry.Column> columns) {
    List<Object> answer = new ArrayList<>();
    for (CanalEntry.Column column : columns) {
      answer.add(
          object(
              "index", column.getIndex(),
              "sqlType", column.getSqlType(),
              "name", column.getName(),
              "key", column.getIsKey(),
              "updated", column.getUpdated(),
              "null", column.getIsNull(),
              "value", column.getValue(),
              "length", column.getLength(),
              "mysqlType", column.getMysqlType()));
    }
    return answer;
  }

  private static Map<String, Object> object(Object... keysAndValues) {
    Map<String, Object> made = new LinkedHashMap<>();
    for (int i = 0; i < keysAndValues.length; i += 2) {
      made.put((String) keysAndValues[i], keysAndValues[i + 1]);
    }
    return made;
  }

  // --- JSON -----------------------------------------------------------------------

  private static void write(Object value, StringBuilder text) {
    if (value instanceof Map) {
      String separator = "{";
      for (Map.Entry<?, ?> pair : ((Map<?, ?>) value).entrySet()) {
        text.append(separator);
        write(pair.getKey(), text);
        text.append(':');
        write(pair.getValue(), text);
        separator = ",";
      }
      text.append(separator.equals("{") ? "{}" : "}");
    } else if (value instanceof List) {
      String separator = "[";
      for (Object item : (List<?>) value) {
        text.append(separator);
        write(item, text);
        separator = ",";
      }
      text.append(separator.equals("[") ? "[]" : "]");
    } else if (value instanceof String) {
      writeString((String) value, text);
    } else {
      text.append(value); // a number or a boolean
    }
  }

  private static void writeString(String value, StringBuilder text) {
    text.append('"');
    for (char each : value.toCharArray()) {
      if (each < ' ' || each == '"' || each == '\\') {
        text.append(String.format("\\u%04x", (int) each));
      } else {
        text.append(each);
      }
    }
    text.append('"');
  }
}
