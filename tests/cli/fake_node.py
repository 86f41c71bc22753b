"""The HTTP side of a node, as the commands see it: answers are what the test says."""

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

Answer = tuple[int, object]


class FakeNode:
    """Takes every update; `answer` may be replaced by something less friendly."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, str, Any]] = []
        self.versions: dict[str, int] = {}
        self.answer: Callable[[str, str, Any], Answer] = self.friendly

    def friendly(self, method: str, path: str, body: Any) -> Answer:
        if path == "/v1/publish":
            updates = body if isinstance(body, list) else [body]
            return 200, {"results": [self._published(update) for update in updates]}
        if path == "/v1/reset":
            self.versions.pop(f"{body['app']}/{body['name']}", None)
            return 200, {}
        return 404, {"error": {"code": "bad_input", "text": f"there is no {path}"}}

    def _published(self, update: dict[str, Any]) -> dict[str, Any]:
        if len(base64.b64decode(update.get("payload", ""))) > 1024:
            return {"error": {"code": "too_large", "text": "payload above 1024 bytes"}}
        version = int(update.get("version", 7))
        self.versions[f"{update['app']}/{update['name']}"] = version
        return {"version": str(version)}


@contextmanager
def fake_node() -> Iterator[FakeNode]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = msgspec.json.decode(self.rfile.read(length)) if length else None
            node.requests.append((self.command, self.path, body))
            status, answer = node.answer(self.command, self.path, body)
            content = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        node = FakeNode(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield node
        finally:
            server.shutdown()
            thread.join()
