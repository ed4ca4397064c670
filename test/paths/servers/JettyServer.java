import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import java.net.InetSocketAddress;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Jetty with a servlet for /admin/* as its defaults have it. */
class JettyServer {
    static class Says extends HttpServlet {
        final String read;
        Says(String read) { this.read = read; }
        @Override protected void service(HttpServletRequest q, HttpServletResponse a) { a.setHeader("X-Reads", read); }
    }

    public static void main(String[] args) throws Exception {
        Server s = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        ServletContextHandler c = new ServletContextHandler();
        c.setContextPath("/");
        c.addServlet(new ServletHolder(new Says("admin")), "/admin/*");
        c.addServlet(new ServletHolder(new Says("other")), "/");
        s.setHandler(c);
        s.start();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
