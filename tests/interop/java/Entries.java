import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;

/**
 * DLedger's own server over a directory, told by JSON lines on standard input what to do; each answer is one line.
 * Argument: its DLedgerConfig as JSON. The end of the input stops it cleanly.
 */
public class Entries {
    public static void main(String[] args) throws Exception {
        DLedgerConfig config = JSON.parseObject(args[0], DLedgerConfig.class);
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JSONObject answer = new JSONObject();
            try {
                answer.put("answer", done(server, config, JSON.parseObject(line)));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            System.out.println(answer);
            System.out.flush();
        }
        server.shutdown();
        System.exit(0);
    }

    private static Object done(DLedgerServer server, DLedgerConfig config, JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "state":
                Map<String, Object> state = new TreeMap<>();
                state.put("leader", server.getMemberState().isLeader());
                state.put("term", server.getMemberState().currTerm());
                state.put("begin", server.getdLedgerStore().getLedgerBeginIndex());
                state.put("end", server.getdLedgerStore().getLedgerEndIndex());
                state.put("committed", server.getdLedgerStore().getCommittedIndex());
                return state;
            case "get":
                return fields(server.getdLedgerStore().get(command.getLong("index")));
            case "append":
                AppendEntryRequest request = new AppendEntryRequest();
                request.setGroup(config.getGroup());
                request.setRemoteId(config.getSelfId());
                request.setBody(Base64.getDecoder().decode(command.getString("body")));
                AppendEntryResponse response = server.handleAppend(request).get();
                Map<String, Object> result = new TreeMap<>();
                result.put("code", response.getCode());
                result.put("index", response.getIndex());
                result.put("pos", response.getPos());
                return result;
            default:
                throw new IllegalArgumentException("what is " + command.getString("do"));
        }
    }

    private static Map<String, Object> fields(DLedgerEntry entry) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("entry_index", entry.getIndex());
        fields.put("term", entry.getTerm());
        fields.put("position", entry.getPos());
        fields.put("size", entry.getSize());
        fields.put("body", Base64.getEncoder().encodeToString(entry.getBody()));
        return fields;
    }
}
