import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's own producers and consumer, told by JSON lines on standard input what to do; each answer is one line.
 * Argument: the name server's address. The end of the input ends the program.
 */
public class Messages {
    private static final int PULLED_AT_ONCE = 32;
    private static final int MOST_FOUND = 32;

    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private DefaultMQPullConsumer consumer;
    private DefaultMQAdminExt admin;
    private TransactionMQProducer transactions;

    private Messages(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        Messages messages = new Messages(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JSONObject answer = new JSONObject();
            try {
                answer.put("answer", messages.done(JSON.parseObject(line)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            byte[] bytes = (answer.toString(SerializerFeature.WriteMapNullValue) + "\n").getBytes(StandardCharsets.UTF_8);
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object done(JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "master":
                return master(command.getString("broker"));
            case "topic":
                TopicConfig topic = new TopicConfig(command.getString("topic"));
                topic.setReadQueueNums(command.getIntValue("queues"));
                topic.setWriteQueueNums(command.getIntValue("queues"));
                admin().createAndUpdateTopicConfig(command.getString("broker"), topic);
                return true;
            case "send":
                return sent(command);
            case "load":
                return load(command);
            case "batch":
                return batch(command);
            case "transaction":
                return transaction(command);
            case "view":
                return fields(consumer().viewMessage(command.getString("id")));
            case "query":
                return consumer().queryMessage(command.getString("topic"), command.getString("key"), MOST_FOUND, 0,
                    Long.MAX_VALUE).getMessageList().stream().map(Messages::fields).collect(Collectors.toList());
            case "pull":
                return pulled(queue(command), command.getString("tags"));
            case "offset":
                return consumer().searchOffset(queue(command), command.getLongValue("time"));
            default:
                throw new IllegalArgumentException("what is " + command.getString("do"));
        }
    }

    /** Whether the name server knows this broker as a master. */
    private boolean master(String address) throws Exception {
        for (BrokerData broker : admin().examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            if (address.equals(broker.getBrokerAddrs().get(0L))) {
                return true;
            }
        }
        return false;
    }

    private List<Object> sent(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(command.getString("compression"));
        List<Object> results = new ArrayList<>();
        for (Object one : command.getJSONArray("messages")) {
            results.add(result(producer.send(message((JSONObject) one), queue((JSONObject) one))));
        }
        return results;
    }

    /** How many messages of a size are acknowledged when some threads send one after the other, for that long. */
    private Object load(JSONObject command) throws Exception {
        DefaultMQProducer producer = producer(null);
        int queues = command.getIntValue("queues");
        int threads = command.getIntValue("threads");
        byte[] body = new byte[command.getIntValue("size")];
        LongAdder acknowledged = new LongAdder();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long began = System.nanoTime();
        long end = began + (long) (command.getDoubleValue("seconds") * 1e9);
        List<Future<?>> senders = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            MessageQueue queue = new MessageQueue(
                command.getString("topic"), command.getString("broker"), thread % queues);
            senders.add(pool.submit(() -> {
                while (System.nanoTime() < end) {
                    SendResult result = producer.send(new Message(queue.getTopic(), body), queue);
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        throw new IllegalStateException(result.toString());
                    }
                    acknowledged.increment();
                }
                return null;
            }));
        }
        pool.shutdown();
        for (Future<?> sender : senders) {
            sender.get();
        }
        return acknowledged.sum() / ((System.nanoTime() - began) / 1e9);
    }

    private Object batch(JSONObject command) throws Exception {
        JSONArray all = command.getJSONArray("messages");
        List<Message> messages = new ArrayList<>();
        for (Object one : all) {
            messages.add(message((JSONObject) one));
        }
        return result(producer(null).send(messages, queue(all.getJSONObject(0))));
    }

    private List<Object> transaction(JSONObject command) throws Exception {
        if (transactions == null) {
            transactions = new TransactionMQProducer("interop-transactions");
            transactions.setNamesrvAddr(nameServer);
            transactions.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                    return LocalTransactionState.valueOf((String) outcome);
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return LocalTransactionState.UNKNOW;
                }
            });
            transactions.start();
        }
        List<Object> results = new ArrayList<>();
        for (Object one : command.getJSONArray("messages")) {
            Message message = message((JSONObject) one);
            results.add(result(transactions.sendMessageInTransaction(message, command.getString("outcome"))));
        }
        return results;
    }

    private static Message message(JSONObject from) {
        Message message = new Message(from.getString("topic"), Base64.getDecoder().decode(from.getString("body")));
        message.setFlag(from.getIntValue("flag"));
        if (from.containsKey("tags")) {
            message.setTags(from.getString("tags"));
        }
        if (from.containsKey("keys")) {
            message.setKeys(from.getString("keys"));
        }
        if (from.containsKey("delay")) {
            message.setDelayTimeLevel(from.getIntValue("delay"));
        }
        if (from.containsKey("properties")) {
            from.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        return message;
    }

    private static MessageQueue queue(JSONObject from) {
        return new MessageQueue(from.getString("topic"), from.getString("broker"), from.getIntValue("queue"));
    }

    private static Map<String, Object> result(SendResult result) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("status", result.getSendStatus().name());
        fields.put("unique_key", result.getMsgId());
        fields.put("message_id", result.getOffsetMsgId());
        fields.put("queue_offset", result.getQueueOffset());
        return fields;
    }

    /** Every message of a queue that has these tags; "*" are any. */
    private List<Object> pulled(MessageQueue queue, String tags) throws Exception {
        DefaultMQPullConsumer consumer = consumer();
        // The name server knows no route of some internal topics; asking for another one first, the client learns where
        // the broker is.
        consumer.minOffset(new MessageQueue(TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC, queue.getBrokerName(), 0));
        List<Object> messages = new ArrayList<>();
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, tags, offset, PULLED_AT_ONCE);
            if (result.getPullStatus() == PullStatus.FOUND) {
                result.getMsgFoundList().forEach(message -> messages.add(fields(message)));
            } else if (result.getPullStatus() != PullStatus.NO_MATCHED_MSG && result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException(queue + " at " + offset + " of " + end + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return messages;
    }

    private static Map<String, Object> fields(MessageExt message) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("keys", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("unique_key", message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
        MessageAccessor.clearProperty(message, MessageConst.PROPERTY_MIN_OFFSET);  // the consumer has added these
        MessageAccessor.clearProperty(message, MessageConst.PROPERTY_MAX_OFFSET);
        fields.put("topic", message.getTopic());
        fields.put("queue_id", message.getQueueId());
        fields.put("queue_offset", message.getQueueOffset());
        fields.put("physical_offset", message.getCommitLogOffset());
        fields.put("message_id", org.apache.rocketmq.common.message.MessageDecoder.createMessageId(
            (InetSocketAddress) message.getStoreHost(), message.getCommitLogOffset()));
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        fields.put("properties", new TreeMap<>(message.getProperties()));
        fields.put("born_timestamp", message.getBornTimestamp());
        fields.put("born_host", host(message.getBornHost()));
        fields.put("store_timestamp", message.getStoreTimestamp());
        fields.put("store_host", host(message.getStoreHost()));
        fields.put("flag", message.getFlag());
        fields.put("sys_flag", message.getSysFlag());
        fields.put("reconsume_times", message.getReconsumeTimes());
        fields.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        fields.put("body_crc", message.getBodyCRC());
        fields.put("stored_size", message.getStoreSize());
        return fields;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    /** A producer packs with what this property said when it was made. */
    private DefaultMQProducer producer(String compression) throws Exception {
        String name = compression == null ? "ZLIB" : compression;
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) {
            System.setProperty("rocketmq.message.compressType", name);
            producer = new DefaultMQProducer("interop-" + name);
            producer.setNamesrvAddr(nameServer);
            producer.setSendMsgTimeout(15_000);
            producer.start();
            producers.put(name, producer);
        }
        return producer;
    }

    private DefaultMQPullConsumer consumer() throws Exception {
        if (consumer == null) {
            consumer = new DefaultMQPullConsumer("interop-consumer");
            consumer.setNamesrvAddr(nameServer);
            consumer.start();
        }
        return consumer;
    }

    private DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            admin = new DefaultMQAdminExt("interop-admin");
            admin.setNamesrvAddr(nameServer);
            admin.start();
        }
        return admin;
    }
}
