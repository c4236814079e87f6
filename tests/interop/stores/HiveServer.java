import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** Hive's metastore, with the tables of its locks, which it does not create itself. */
public class HiveServer {
  public static void main(String[] arguments) throws Throwable {
    TxnDbUtil.prepDb(MetastoreConf.newMetastoreConf());
    try {
      HiveMetaStore.main(arguments);
    } catch (Throwable error) {
      error.printStackTrace();
      System.exit(1); // its threads go on
    }
  }
}
