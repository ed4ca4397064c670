import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

/** The JDK's HttpServer with a context for /admin/: one for /admin would be for /administration, too. */
class Jdk {
    public static void main(String[] args) throws Exception {
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
        for (String[] c : new String[][] {{"/admin/", "admin"}, {"/", "other"}}) {
            s.createContext(c[0], x -> {
                x.getResponseHeaders().set("X-Reads", c[1]);
                x.sendResponseHeaders(200, -1);
                x.close();
            });
        }
        s.start();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
