"""Passwords from a program, a file, a function and libpq's own places; tokens that expire between
epochs and in the middle of one."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from abs_clients.postgres import password
from abs_clients.postgres.connection import connect
from abs_clients.postgres.password import COMMAND, FILE, FUNCTION, PasswordSource
from abs_clients.postgres.pool import close_idle
from abs_core.errors import AbsError, OptionError, RefusedError, UnavailableError
from abs_services import PostgresService
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_testing.engine import Run
from abs_testing.harness import SCHEMA
from tests.kit import passwords

SOURCES = {
    COMMAND: "{python} -c \"print(open('{file}').read())\"",
    FILE: "{file}",
    FUNCTION: "tests.kit.passwords:of_file",
}


@dataclass
class Rotated:
    """A role whose password is replaced; the file has the one that is good now."""

    url: str
    admin: str
    user: str
    file: Path

    def rotate(self) -> str:
        new = f"geheim/@%: {secrets.token_hex(8)}"
        with psycopg.connect(self.admin, autocommit=True) as session:
            session.execute(f"alter role {self.user} password '{new}'")
        self.file.write_text(new)
        return new

    def options(self, name: str, value: str, **more: str) -> PostgresOptions:
        given = {"url": self.url, "dbtable": "t", "createtable": "true", name: value}
        return PostgresOptions.parse(given | more)


@pytest.fixture
def rotated(
    database: str, postgres: PostgresService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rotated]:
    parts = urlsplit(database)
    assert parts.username
    bare = f"{parts.username}@{parts.hostname}:{parts.port}"
    file = tmp_path / "password"
    monkeypatch.setenv("ABS_TEST_PASSWORD", str(file))
    found = Rotated(
        urlunsplit(parts._replace(netloc=bare)), postgres.admin_url, parts.username, file
    )
    found.rotate()
    yield found
    close_idle()
    with psycopg.connect(postgres.admin_url, autocommit=True) as session:
        session.execute(f"alter role {parts.username} password '{parts.password}'")


def value_of(source: str, rotated: Rotated) -> str:
    return SOURCES[source].format(python=sys.executable, file=rotated.file)


@pytest.mark.services
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_token_may_expire_between_epochs_and_in_the_middle_of_one(
    rotated: Rotated, source: str, protocol: str
) -> None:
    options = rotated.options(source, value_of(source, rotated), protocol=protocol)
    sink = PostgresSink(options, SCHEMA)
    run = Run(sink, "job")
    run.epoch(0, [(1, "first")])
    rotated.rotate()
    close_idle()  # as a new executor: every session is a new one
    run.epoch(1, [(2, "between")])
    attempt = run.attempt(2).write((3, "before"))
    rotated.rotate()
    close_idle()
    run.commit(2, [attempt.write((4, "after")).pre_commit()])
    with connect(options.server) as session:
        assert session.execute("select id from t order by id").fetchall() == [
            (1,),
            (2,),
            (3,),
            (4,),
        ]


@pytest.mark.services
def test_a_function_gets_the_parameters_of_the_connection_and_no_password(
    rotated: Rotated,
) -> None:
    passwords.asked.clear()
    with connect(rotated.options(FUNCTION, "tests.kit.passwords:of_file").server):
        pass
    parts = urlsplit(rotated.url)
    assert passwords.asked == [
        {
            "host": parts.hostname,
            "port": str(parts.port),
            "user": rotated.user,
            "dbname": parts.path.lstrip("/"),
        }
    ]


@pytest.mark.services
def test_a_password_that_is_no_longer_good_is_refused_and_not_shown(rotated: Rotated) -> None:
    options = rotated.options(FILE, str(rotated.file))
    rotated.rotate()
    rotated.file.write_text("geheim-alt")
    with pytest.raises(RefusedError, match="password") as caught:
        connect(options.server)
    assert "geheim" not in f"{caught.value} {options!r} {caught.value.__cause__!r}"


@pytest.mark.services
@pytest.mark.parametrize("place", ["environment", "passfile", "service"])
def test_libpqs_own_places_for_a_password_work(
    rotated: Rotated, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = rotated.rotate()
    url, parts = rotated.url, urlsplit(rotated.url)
    if place == "environment":
        monkeypatch.setenv("PGPASSWORD", password)
    elif place == "passfile":
        file = tmp_path / "pgpass"
        file.write_text(f"*:*:*:{rotated.user}:{password.replace(':', chr(92) + ':')}\n")
        file.chmod(0o600)
        url = f"{url}?passfile={file}"
    else:
        file = tmp_path / "services.conf"
        lines = {"host": parts.hostname, "port": parts.port, "user": rotated.user}
        lines |= {"dbname": parts.path.lstrip("/"), "password": password}
        file.write_text("[mine]\n" + "".join(f"{k}={v}\n" for k, v in lines.items()))
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        url = "service=mine"
    options = PostgresOptions.parse({"url": url, "dbtable": "t", "createtable": "true"})
    with closing(PostgresSink(options, SCHEMA)) as sink:
        Run(sink, "job").epoch(0, [(1, "first")])
    with connect(options.server) as session:
        assert session.execute("select count(*) from t").fetchone() == (1,)
    close_idle()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({COMMAND: "'"}, "not a command line"),
        ({FUNCTION: "no function"}, "module:function"),
        ({COMMAND: "geheim", FILE: "geheim"}, "both give a password"),
        ({FILE: "geheim", "password": "geheim"}, "beside the option passwordfile"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_connected(
    given: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError, match=named) as caught:
        PostgresOptions.parse({"url": "postgresql://h/db", "dbtable": "t", **given})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "kind", "named"),
    [
        (COMMAND, f"{sys.executable} -c 'exit(3)'", UnavailableError, "code 3"),
        (COMMAND, "/no/such/program geheim", OptionError, "cannot be used"),
        (COMMAND, f"{sys.executable} -c ''", RefusedError, "gave no password"),
        (FILE, "/no/such/geheim", OptionError, "cannot be read"),
        (FILE, os.devnull, RefusedError, "gave no password"),
        (FUNCTION, "tests.kit.passwords:failing", UnavailableError, "no metadata service"),
        (FUNCTION, "tests.kit.passwords:slow_itself", UnavailableError, "the function's own"),
        (FUNCTION, "tests.kit.passwords:nothing", OptionError, "returned NoneType"),
        (FUNCTION, "tests.kit.passwords:not_there", OptionError, "cannot be imported"),
    ],
)
def test_a_source_that_gives_nothing_is_told_by_kind(
    option: str, value: str, kind: type[AbsError], named: str
) -> None:
    with pytest.raises(kind, match=named) as caught:
        PasswordSource(option, value).obtain({})
    assert "geheim" not in str(caught.value)


def test_a_function_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password, "OBTAIN_SECONDS", 0.05)
    try:
        with pytest.raises(
            UnavailableError, match=r"passwords:hanging gave no password within 0.05 s"
        ):
            PasswordSource(FUNCTION, "tests.kit.passwords:hanging").obtain({})
    finally:
        passwords.answers.set()
