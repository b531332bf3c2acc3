#!/usr/bin/python3
"""A function of the runtime `custom`: an HTTP server on $PORT. Each call is a POST to /, its payload the body."""
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Function(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        name = payload.get("name", "world")
        print(f"greeting {name} in invocation {self.headers['X-Hearth-Invocation-Id']}", flush=True)
        body = json.dumps({"message": f"Hello, {name}!"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Function).serve_forever()
