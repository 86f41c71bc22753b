"""MariaDB over TLS, with a password that nobody else gets to see."""

import logging
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.serving import certificates
from tests.sources.servers import MariaDb
from tests.sources.test_mysql import changes, keys, read

from roskva.errors import Unavailable
from roskva.sources.database import Tables
from roskva.sources.mysql.log import MysqlLog

PASSWORD = "correct horse"
PRODUCTS = Tables(("products",))


@pytest.mark.verify
def test_a_log_is_read_over_tls_from_whoever_has_the_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, others = (certificates.made(tmp_path / name) for name in ("ours", "others"))
    caplog.set_level(logging.DEBUG)
    with tempfile.TemporaryDirectory(prefix="roskva-mariadb-") as place:
        server = MariaDb(Path(place))
        for name in ("ca.crt", "server.crt", "server.key"):
            shutil.copy(ours / name, place)
            (Path(place) / name).chmod(0o644)
        server.make(
            *(f"--ssl-ca={place}/ca.crt", f"--ssl-cert={place}/server.crt"),
            f"--ssl-key={place}/server.key",
        )
        try:
            server.run(
                "CREATE TABLE products (id bigint PRIMARY KEY)",
                f"ALTER USER roskva@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL",
            )
            log = MysqlLog("shop", server.url, PASSWORD, PRODUCTS, str(ours / "ca.crt"))
            log.connect(None, False)
            server.run("INSERT INTO products VALUES (1)")
            found = read(log, lambda found: bool(changes(found)))
            assert keys(changes(found)) == [("insert", "1")]
            log.close()
            for password, ca in (
                (PASSWORD, others / "ca.crt"),
                (f"not {PASSWORD}", ours / "ca.crt"),
            ):
                with pytest.raises(Unavailable) as refused:
                    MysqlLog("shop", server.url, password, PRODUCTS, str(ca)).connect(None, False)
                assert PASSWORD not in str(refused.value)
        finally:
            server.kill()
    assert PASSWORD not in caplog.text
