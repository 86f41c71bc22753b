"""What stands between a browser and a node in real life, in little: one origin for both.

It serves a page that listens to events and reports what it was told, and passes everything under
/v1/ on to the node. Where the node is not there, it hangs up.
"""

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote

from tests.serving.nodes import Node, await_that

_PATIENCE_S: Final = 30.0
_PAGE: Final = """<!doctype html><title>listening</title><script>
new EventSource("%s").addEventListener("notify", event => {
  const told = JSON.parse(event.data);
  fetch("/told/" + encodeURIComponent(told.object + " " + told.version));
});
</script>"""


class Ingress:
    def __init__(self, node: Node, events: str) -> None:
        self.told: list[str] = []
        """By the node to the page."""
        self.last_event_ids: list[str | None] = []
        """That the browser asked for events with."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, node, events))
        self._server.daemon_threads = True
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def await_told(self, wanted: set[str]) -> None:
        await_that(lambda: set(self.told) == wanted, _PATIENCE_S, lambda: f"told: {self.told}")

    def __enter__(self) -> Self:
        self._serving.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()


def _handler(ingress: Ingress, node: Node, events: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v1/"):
                self._pass_on()
                return
            if self.path.startswith("/told/"):
                ingress.told.append(unquote(self.path.removeprefix("/told/")))
            body = (_PAGE % events).encode() if self.path == "/" else b""
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _pass_on(self) -> None:
            self.close_connection = True
            ingress.last_event_ids.append(self.headers.get("Last-Event-ID"))
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", node.port)) as onwards,
            ):
                lines = [self.requestline, *(f"{k}: {v}" for k, v in self.headers.items()), "", ""]
                onwards.sendall("\r\n".join(lines).encode())
                while data := onwards.recv(65536):
                    self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
