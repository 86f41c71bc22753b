"""A node over HTTP that does what it is told, for tests of those who publish to it."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[list[dict[str, Any]]], tuple[int, dict[str, Any]]]


class ScriptedNode:
    """Used as a context. `answers` are used up first; then everything is accepted."""

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []
        self.requests = 0
        self.answers: list[Answer] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer = node.answer(body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, updates: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        self.requests += 1
        if self.answers:
            return self.answers.pop(0)(updates)
        self.published += updates
        return 200, {"results": [{"version": update.get("version", "1")} for update in updates]}

    def __enter__(self) -> "ScriptedNode":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
