"""Certificates for tests, and nodes that use them."""

from pathlib import Path

from roskva import Tls
from roskva.cli.certs import CertificateAuthority, Issued, make

HERE = ["localhost", "127.0.0.1"]


def made(directory: Path, *clients: str) -> Path:
    make(directory, HERE, list(clients), 30)
    return directory


def settings(file: Path, certs: Path, *more: str) -> Path:
    file.write_text(
        f'[tls]\ncertificate = "{certs}/server.crt"\nkey = "{certs}/server.key"\n' + "\n".join(more)
    )
    return file


def authority(certs: Path) -> CertificateAuthority:
    return CertificateAuthority.read(
        Issued((certs / "ca.crt").read_bytes(), (certs / "ca.key").read_bytes())
    )


def put(certs: Path, issued: Issued, name: str = "server") -> None:
    (certs / f"{name}.crt").write_bytes(issued.certificate)
    (certs / f"{name}.key").write_bytes(issued.key)


def trusting(certs: Path, client: str | None = None) -> Tls:
    if client is None:
        return Tls(certs / "ca.crt")
    return Tls(certs / "ca.crt", certs / f"client-{client}.crt", certs / f"client-{client}.key")
