"""An ingest beside a node with TLS believes that node's certificate, and no other."""

from pathlib import Path

from tests.serving import certificates
from tests.serving.certificates import authority, put
from tests.serving.nodes import Node, await_that

from roskva.cli.certs import CertificateAuthority
from roskva.pipeline.publish_sink import NodeAt
from roskva.publisher.requests import PublishFailure, UpdateBody


def test_updates_reach_a_node_with_tls(tmp_path: Path) -> None:
    certs = certificates.made(tmp_path / "certs")
    put(certs, authority(certs).server(["node.example.com"], 30))  # not its address
    file = certificates.settings(tmp_path / "roskva.toml", certs)
    node = Node(tmp_path / "data", "--config", str(file))
    node.scheme = "https"
    at = NodeAt("", str(node.data))
    try:
        node.start()
        assert at.publish([UpdateBody("test", "x", "1")]) == [1]
        put(certs, CertificateAuthority.create().server(["localhost"], 30))
        node.reload()
        await_that(lambda: "is read again" in node.said(), 30.0)
        at.close()
        assert at.publish([UpdateBody("test", "x", "2")]) == [2]
        put(
            certs, CertificateAuthority.create().server(["localhost"], 30)
        )  # the node does not know of it
        at.close()
        [refused] = at.attempt([UpdateBody("test", "x", "3")])
        assert isinstance(refused, PublishFailure)
        assert "certificate" in refused.text
    finally:
        at.close()
        node.end()
