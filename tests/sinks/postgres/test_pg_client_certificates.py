"""A PostgreSQL server that asks for client certificates: a job goes through with one, and without one
it is refused. The server of the other tests has no TLS: a distribution's is needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from abs_clients.postgres.address import Server
from abs_clients.postgres.connection import told_login
from abs_clients.postgres.pool import close_idle
from abs_core.errors import RefusedError
from abs_services.native import postgres as native
from abs_services.native.postgres import NativePostgres
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_testing.engine import Run
from abs_testing.harness import SCHEMA
from tests.sinks.kafka.certificates import Authority, Certified

PLACES = [
    Path(os.environ.get("ABS_TEST_POSTGRES", "/usr/lib/postgresql/15/bin")),
    *sorted(Path("/usr/lib/postgresql").glob("*/bin")),
]
"""Where a PostgreSQL with TLS may be: Debian's packages, or what the variable names."""

BINARIES = next((place for place in PLACES if (place / "postgres").exists()), None)

HBA = """
local all all scram-sha-256
host all postgres,abs 127.0.0.1/32 scram-sha-256
hostssl all all 127.0.0.1/32 cert
"""

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(BINARIES is None, reason="there is no PostgreSQL with TLS"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificates"),
]


class TlsPostgres(NativePostgres):
    """Shows a certificate, and asks for one; its files lie in its folder."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(major=15)
        self._authority, self._shown = authority, authority.new()

    def _prepare_folder(self) -> None:
        super()._prepare_folder()
        texts = {
            "hba.conf": HBA,
            "authority.pem": self._authority.certificate.read_text(),
            "server.pem": self._shown.certificate.read_text(),
            "server.key": self._shown.key.read_text(),
        }
        for name, text in texts.items():
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_text(text)
            if self._account is not None:
                self._account.own(path)
        self.settings |= {
            "ssl": "on",
            "hba_file": str(self.folder / "hba.conf"),
            "ssl_ca_file": str(self.folder / "authority.pem"),
            "ssl_cert_file": str(self.folder / "server.pem"),
            "ssl_key_file": str(self.folder / "server.key"),
        }


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "known")


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[TlsPostgres]:
    with (
        mock.patch.object(native, "find_binaries", return_value=BINARIES),
        TlsPostgres(authority) as started,
    ):
        yield started
        close_idle()


@pytest.fixture
def role(server: TlsPostgres, authority: Authority) -> Certified:
    """Who is let in as the role that the certificate names."""
    client = authority.new()
    with psycopg.connect(server.admin_url, autocommit=True) as admin:
        name = client.principal.removeprefix("CN=")
        admin.execute(f'create role "{name}" login')
        admin.execute(f'create database "{name}" owner "{name}"')
    return client


def url_of(
    server: TlsPostgres, authority: Authority, client: Certified, *, shows: bool = True
) -> str:
    name = client.principal.removeprefix("CN=")
    shown = f"&sslcert={client.certificate}&sslkey={client.key}" if shows else "&sslcert=/no/such"
    trusts = f"sslmode=verify-ca&sslrootcert={authority.certificate}"
    return f"postgresql://{name}@127.0.0.1:{server.port}/{name}?{trusts}{shown}"


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_job_is_let_in_by_its_certificate_and_refused_without(
    server: TlsPostgres, authority: Authority, role: Certified, protocol: str
) -> None:
    more = {"dbtable": "t", "createtable": "true", "protocol": protocol}
    options = PostgresOptions.parse({"url": url_of(server, authority, role), **more})
    with closing(PostgresSink(options, SCHEMA)) as sink:
        run = Run(sink, "job")
        run.epoch(0, [(1, "first")])
        run.attempt(1).write((2, "of a process that dies")).pre_commit()
        Run(sink, "job").epoch(1, [(3, "again")])
    with psycopg.connect(url_of(server, authority, role)) as session:
        assert session.execute("select id from t order by id").fetchall() == [(1,), (3,)]
    without = url_of(server, authority, role, shows=False)
    with pytest.raises(RefusedError, match="certificate"):
        PostgresSink(PostgresOptions.parse({"url": without, **more}), SCHEMA).preflight("job")


def test_who_is_certified_is_named_with_the_end_of_the_certificate(
    server: TlsPostgres, authority: Authority, role: Certified
) -> None:
    told = told_login(Server.at(url_of(server, authority, role))).what
    name = role.principal.removeprefix("CN=")
    assert f"logged in as {name} (certificate commonName={name})" in told
    assert "its certificate is good until" in told
