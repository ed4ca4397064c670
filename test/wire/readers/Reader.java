import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;

/** An HTTP server on the JDK's own parser that answers every request with what it read. It prints its port. */
public final class Reader {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
        server.createContext("/", Reader::answer);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
        System.out.println(server.getAddress().getPort());
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }

    private static void answer(HttpExchange x) throws IOException {
        byte[] body = x.getRequestBody().readAllBytes();
        StringBuilder out = new StringBuilder("{\"Method\":");
        quote(out, x.getRequestMethod());
        quote(out.append(",\"Target\":"), x.getRequestURI().toString());
        out.append(",\"Fields\":[");
        boolean first = true;
        for (Map.Entry<String, List<String>> e : x.getRequestHeaders().entrySet()) {
            for (String value : e.getValue()) {
                out.append(first ? "{\"Name\":" : ",{\"Name\":");
                first = false;
                quote(out, e.getKey());
                quote(out.append(",\"Value\":"), value);
                out.append('}');
            }
        }
        quote(out.append("],\"Body\":"), new String(body, StandardCharsets.ISO_8859_1));
        byte[] reply = out.append('}').toString().getBytes(StandardCharsets.UTF_8);
        // The reading goes into a field: an answer to HEAD has no content.
        x.getResponseHeaders().set("X-Reading", Base64.getEncoder().encodeToString(reply));
        x.sendResponseHeaders(200, -1);
        x.close();
    }

    private static void quote(StringBuilder out, String s) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c < ' ' || c == '"' || c == '\\' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
