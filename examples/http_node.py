"""A node by the published wire alone, over HTTP, with Python's own library: no Canoa and no broker in it.

`python http_node.py http://MANAGER:8420 NODE_ID`
"""

import json
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MANAGER, NODE_ID = sys.argv[1:]
TRIPLE = "urn:sapparchi:Action:web.triple"


def post(path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(MANAGER + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def work(message: dict[str, Any]) -> None:
    number = json.loads(message["messageData"])["number"]
    post("/sapparchi/results", {**message, "messageData": json.dumps({"tripled": 3 * number})})


class Door(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(202)
        self.end_headers()
        threading.Thread(target=work, args=[message]).start()

    def log_message(self, *_: object) -> None:
        """Quiet."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{server.server_port}"
while True:
    said = {"nodeId": NODE_ID, "endpoint": endpoint, "layer": "FOG", "type": "bare", "actions": [TRIPLE]}
    try:
        post("/sapparchi/nodes/register", {**said, "forceRegister": False})
        time.sleep(30)  # its sign of life; a manager waits for two and a half minutes
    except OSError:
        time.sleep(1)
