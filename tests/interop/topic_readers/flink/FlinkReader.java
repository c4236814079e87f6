import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Executes statements of Flink SQL; prints the changes that the last one, a query, yields. */
public final class FlinkReader {
    private FlinkReader() {}

    public static void main(String[] statements) throws Exception {
        TableEnvironment tables =
                TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        int last = statements.length - 1;
        for (int number = 0; number < last; number++) {
            tables.executeSql(statements[number]);
        }
        try (CloseableIterator<Row> rows = tables.executeSql(statements[last]).collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                StringBuilder line = new StringBuilder(row.getKind().shortString());
                for (int field = 0; field < row.getArity(); field++) {
                    line.append('\t').append(row.getField(field));
                }
                System.out.println("row " + line);
            }
        }
    }
}
