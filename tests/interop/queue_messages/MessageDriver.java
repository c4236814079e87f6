import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.connector.core.util.CanalMessageSerializerUtil;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.CanalPacket;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadPoolExecutor;

/**
 * Converts batches as the original's producers do. Reads from its standard input, for each batch:
 * the length and bytes of a JSON object with the settings, then those of a Messages. Writes for each
 * batch how many messages it became, and for each of them topic, partition and value.
 */
public class MessageDriver {

    public static void main(String[] arguments) throws Exception {
        DataInputStream input = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream output = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        ThreadPoolExecutor executor = (ThreadPoolExecutor) Executors.newFixedThreadPool(2);
        while (true) {
            byte[] options;
            try {
                options = bytes(input);
            } catch (EOFException end) {
                break;
            }
            Map<String, Object> routing = JSON.parseObject(options);
            List<Object[]> found = converted(routing, bytes(input), executor);
            output.writeInt(found.size());
            for (Object[] each : found) {
                write(output, ((String) each[0]).getBytes(StandardCharsets.UTF_8));
                output.writeInt((Integer) each[1]);
                write(output, (byte[]) each[2]);
            }
            output.flush();
        }
        executor.shutdown();
    }

    static List<Object[]> converted(Map<String, Object> routing, byte[] body, ThreadPoolExecutor executor)
            throws Exception {
        CanalPacket.Messages messages = CanalPacket.Messages.parseFrom(body);
        Message message = new Message(messages.getBatchId(), true, messages.getMessagesList());
        if (!(Boolean) routing.get("rawEntry")) {
            List<CanalEntry.Entry> entries = new ArrayList<>();
            for (ByteString each : messages.getMessagesList()) {
                entries.add(CanalEntry.Entry.parseFrom(each));
            }
            message = new Message(messages.getBatchId(), entries);
        }
        String topic = (String) routing.get("topic");
        String dynamic = (String) routing.get("dynamicTopic");
        List<Object[]> found = new ArrayList<>();
        if (dynamic.isEmpty()) {
            ofTopic(found, topic, routing, message, executor);
        } else {
            Map<String, Message> topics = new TreeMap<>(MQMessageUtils.messageTopics(message, topic, dynamic));
            for (Map.Entry<String, Message> each : topics.entrySet()) {
                ofTopic(found, each.getKey().replace('.', '_'), routing, each.getValue(), executor);
            }
        }
        return found;
    }

    static void ofTopic(
            List<Object[]> found, String topic, Map<String, Object> routing, Message message, ThreadPoolExecutor executor) {
        Integer partitions = MQMessageUtils.parseDynamicTopicPartition(
                topic, (String) routing.get("dynamicTopicPartitionNum"));
        if (partitions == null) {
            partitions = (Integer) routing.get("partitionsNum");
        }
        if ((Boolean) routing.get("flatMessage")) {
            flat(found, topic, partitions, routing, message, executor);
        } else {
            packets(found, topic, partitions, routing, message, executor);
        }
    }

    static void flat(
            List<Object[]> found,
            String topic,
            Integer partitions,
            Map<String, Object> routing,
            Message message,
            ThreadPoolExecutor executor) {
        String hash = (String) routing.get("partitionHash");
        MQMessageUtils.EntryRowData[] data = MQMessageUtils.buildMessageData(message, executor);
        for (FlatMessage each : MQMessageUtils.messageConverter(data, message.getId())) {
            if (hash.isEmpty()) {
                found.add(new Object[] {topic, routing.get("partition"), json(each)});
                continue;
            }
            FlatMessage[] parts =
                    MQMessageUtils.messagePartition(each, partitions, hash, (Boolean) routing.get("databaseHash"));
            for (int at = 0; at < parts.length; at++) {
                if (parts[at] != null) {
                    found.add(new Object[] {topic, at, json(parts[at])});
                }
            }
        }
    }

    static void packets(
            List<Object[]> found,
            String topic,
            Integer partitions,
            Map<String, Object> routing,
            Message message,
            ThreadPoolExecutor executor) {
        String hash = (String) routing.get("partitionHash");
        boolean filter = (Boolean) routing.get("filterTransactionEntry");
        if (hash.isEmpty()) {
            byte[] value = CanalMessageSerializerUtil.serializer(message, filter);
            found.add(new Object[] {topic, routing.get("partition"), value});
            return;
        }
        MQMessageUtils.EntryRowData[] data = MQMessageUtils.buildMessageData(message, executor);
        Message[] parts = MQMessageUtils.messagePartition(
                data, message.getId(), partitions, hash, (Boolean) routing.get("databaseHash"));
        for (int at = 0; at < parts.length; at++) {
            if (parts[at] != null) {
                found.add(new Object[] {topic, at, CanalMessageSerializerUtil.serializer(parts[at], filter)});
            }
        }
    }

    static byte[] json(FlatMessage message) {
        return JSON.toJSONBytes(message, JSONWriter.Feature.WriteNulls);
    }

    static byte[] bytes(DataInputStream input) throws Exception {
        byte[] found = new byte[input.readInt()];
        input.readFully(found);
        return found;
    }

    static void write(DataOutputStream output, byte[] value) throws Exception {
        output.writeInt(value.length);
        output.write(value);
    }
}
