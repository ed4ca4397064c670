import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/** Tomcat with a servlet for /admin/* as its defaults have it. */
class TomcatServer {
    static class Says extends HttpServlet {
        final String read;
        Says(String read) { this.read = read; }
        @Override protected void service(HttpServletRequest q, HttpServletResponse a) { a.setHeader("X-Reads", read); }
    }

    public static void main(String[] args) throws Exception {
        Tomcat t = new Tomcat();
        t.setBaseDir(args[1]);
        t.setHostname("localhost");
        t.setPort(Integer.parseInt(args[0]));
        t.getConnector().setProperty("address", "127.0.0.1");
        Context c = t.addContext("", args[1]);
        Tomcat.addServlet(c, "admin", new Says("admin"));
        Tomcat.addServlet(c, "other", new Says("other"));
        c.addServletMappingDecoded("/admin/*", "admin");
        c.addServletMappingDecoded("/", "other");
        t.start();
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
