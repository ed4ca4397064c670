"""Python's own http.server, which serves files."""
import http.server, os, sys, threading


class Handler(http.server.SimpleHTTPRequestHandler):
    def send_head(self):
        root = os.getcwd()
        path = os.path.relpath(self.translate_path(self.path), root)
        self.send_response(200)
        self.send_header("X-Reads", "admin" if path == "admin" or path.startswith("admin/") else "other")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
