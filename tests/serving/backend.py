"""An app's backend: it answers the hook and publishes keys, or does whatever a test wants of it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Question = dict[str, Any]


class Backend:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[Question] = []
        """What the hook was asked, in order."""
        self.fetched = 0
        self.allows: Callable[[str], bool] = lambda name: True
        self.status = 200
        self.delay_s = 0.0
        self.answering = threading.Event()
        """Until it is set, whoever asks is kept waiting."""
        self.answering.set()
        self.body: bytes | None = None
        """Instead of a proper answer."""
        self.jwks = b'{"keys": []}'

    def answer(self, question: Question) -> bytes:
        self.asked.append(question)
        self._wait()
        if self.body is not None:
            return self.body
        asked = [*question.get("register", []), *question.get("publish", [])]
        allowed = [name for name in asked if self.allows(name)]
        return json.dumps({"allow": allowed}).encode()

    def fetch(self) -> bytes:
        self.fetched += 1
        self._wait()
        return self.jwks

    def _wait(self) -> None:
        time.sleep(self.delay_s)
        self.answering.wait()


@contextmanager
def running_backend() -> Iterator[Backend]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self._respond(backend.answer(json.loads(body)))

        def do_GET(self) -> None:
            self._respond(backend.fetch())

        def _respond(self, body: bytes) -> None:
            try:
                self.send_response(backend.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # whoever asked did not wait

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    backend = Backend(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield backend
    finally:
        backend.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
