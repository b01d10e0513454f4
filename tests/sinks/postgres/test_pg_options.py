"""Options of abs-postgres are read once, all problems at once, and show no secret."""

from __future__ import annotations

import pickle

import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.errors import OptionError
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.options import column_list
from abs_sinks.postgres.sink import guarantee

SECRET = "s3cr3t/+ p%w"  # as it is; URLs hold it encoded
GOOD = {"url": "postgresql://me@h:5433/db", "dbtable": "public.t"}


def test_defaults() -> None:
    options = PostgresOptions.parse(GOOD)
    assert options.protocol == "2pc"
    assert options.write == "append"
    assert options.stateschema == "abs"
    assert options.dbtable == TableName("t", "public")
    assert not options.createtable


def test_names_are_found_in_any_case() -> None:
    # Spark lower-cases them, people do not.
    given = {"URL": GOOD["url"], "dbTable": "t", "stateSchema": "x", "CreateTable": "TRUE"}
    options = PostgresOptions.parse({**given, "checkpointlocation": "/c", "queryname": "q"})
    assert (options.stateschema, options.createtable) == ("x", True)
    assert options.common.checkpoint == "/c"


def test_all_problems_are_told_at_once() -> None:
    given = {
        "url": "postgresql://me@h/db",
        "wirte": "append",
        "protocol": "3pc",
        "batchsize": "many",
        "driver": "org.postgresql.Driver",
        "key": "id",
    }
    with pytest.raises(OptionError) as caught:
        PostgresOptions.parse(given)
    message = str(caught.value)
    for part in ("did you mean write", "'3pc'", "batchsize", "JDBC", "dbtable", "key"):
        assert part in message, part


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"write": "upsert", "key": "id"}, "block each other"),
        ({"protocol": "idempotent"}, "double"),
        ({"protocol": "wal", "write": "upsert"}, "needs the option key"),
        ({"wal": "s3://b/w"}, "tables of its own"),
        ({"stateschema": "pg_abs"}, "belongs to the system"),
        ({"dbtable": "a.b.c"}, "3 parts"),
        ({"dbtable": "x" * 64}, "identifier"),
        ({"job": "j" * 101}, "shorter name"),
        ({"locktimeout": "0"}, "number of seconds"),
        ({"createtable": "maybe"}, "true or false"),
    ],
)
def test_what_contradicts_or_is_malformed_is_refused_with_the_reason(
    given: dict[str, str], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        PostgresOptions.parse({**GOOD, **given})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("id", ("id",)),
        ("a,b", ("a", "b")),
        (' a , "B, c" ,"d""e"', ("a", "B, c", 'd"e')),
        ("eventId", ("eventId",)),
    ],
)
def test_key_columns(given: str, expected: tuple[str, ...]) -> None:
    assert column_list(given) == expected


@pytest.mark.parametrize("given", ["", ",", "a,,b", '"a', 'a"b', "a,a", "x" * 64])
def test_malformed_key_columns(given: str) -> None:
    with pytest.raises(OptionError):
        column_list(given)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://me@h:5433/db", {"user": "me", "host": "h", "port": "5433", "dbname": "db"}),
        ("postgres://h/db", {"host": "h", "dbname": "db"}),
        ("host=h dbname='my db' user=me", {"host": "h", "dbname": "my db", "user": "me"}),
        ("jdbc:postgresql://h:5433/db", {"host": "h", "port": "5433", "dbname": "db"}),
        ("jdbc:postgresql:db", {"host": "localhost", "dbname": "db"}),
        (
            "jdbc:postgresql://h/db?user=me&sslmode=require",
            {"host": "h", "dbname": "db", "user": "me", "sslmode": "require"},
        ),
        ("postgresql://a:1,b:2/db", {"host": "a,b", "port": "1,2", "dbname": "db"}),
        ("postgresql://[::1]:5/db", {"host": "::1", "port": "5", "dbname": "db"}),
        ("postgresql://%40abstract/d%40b", {"host": "@abstract", "dbname": "d@b"}),
        ("postgresql:///db?host=/tmp&user=a@b", {"host": "/tmp", "dbname": "db", "user": "a@b"}),
    ],
)
def test_addresses(url: str, expected: dict[str, str]) -> None:
    assert dict(Address.parse(url).parameters) == expected


def test_a_jdbc_password_is_decoded_once() -> None:
    url = "jdbc:postgresql://h/db?user=me&password=s3cr3t%2F%2B+p%25w"
    assert dict(Address.parse(url).parameters)["password"] == SECRET


def test_user_and_password_go_before_the_urls() -> None:
    address = Address.parse("postgresql://me:old@h/db", user="you", password=SECRET)
    assert dict(address.parameters)["user"] == "you"
    assert dict(address.parameters)["password"] == SECRET


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("jdbc:postgresql://h/db?ssl=true", "sslmode=verify-full"),
        ("jdbc:postgresql://h/db?reWriteBatchedInserts=true", "binary COPY"),
        ("jdbc:postgresql://h/db?currentSchema=x", "dbtable"),
        ("jdbc:postgresql://h/db?noSuchThing=1", "leave it out"),
        ("jdbc:mysql://h/db", "another database"),
        ("postgresql://h", "names no database"),
        ("nonsense", "not a connection string"),
    ],
)
def test_bad_addresses_are_refused_with_what_to_write(url: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        Address.parse(url)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@[h/db",
        f"postgresql://me:{SECRET}@h/db?bad",
        f"postgresql://me:{SECRET} x@h/db",
        f"host=h password={SECRET} dbname",
        f"jdbc:postgresql://h/db?password={SECRET}&ssl=true",
        f"jdbc:mysql://h/db?password={SECRET}",
        f"postgresql://me:{SECRET}@h",
        f"postgresql://me:p@{SECRET}@h/db",
        f"postgresql://me:p/{SECRET}@h:1/db",
        f"postgresql://me:12/{SECRET}@h:1/db",
        f"postgresql://me:p?q@{SECRET}@h/db",
        f"jdbc:postgresql://me:p@{SECRET}@h/db",
        f"jdbc:postgresql://h/db?password=p&{SECRET}",
    ],
)
def test_no_error_about_an_address_shows_it(url: str) -> None:
    with pytest.raises(OptionError) as caught:
        PostgresOptions.parse({"url": url, "dbtable": "t", "password": "x", "passwort": SECRET})
    told = "".join(_whole(caught.value))
    assert "s3cr3t" not in told


def test_no_text_of_options_shows_the_password() -> None:
    options = PostgresOptions.parse({**GOOD, "password": SECRET})
    for text in (repr(options), str(options), repr(options.address), str(options.address)):
        assert "s3cr3t" not in text
    assert options.address.label == "me@h:5433/db"
    assert pickle.loads(pickle.dumps(options)) == options


def _whole(error: BaseException | None) -> list[str]:
    """The error with all that a traceback would show behind it."""
    if error is None:
        return []
    return [str(error), repr(error), *_whole(error.__cause__ or error.__context__)]


@pytest.mark.parametrize("protocol", ["wal", "idempotent"])
def test_an_upserts_start_says_that_the_later_epoch_wins_and_names_the_way(protocol: str) -> None:
    given = {**GOOD, "protocol": protocol, "write": "upsert", "key": "id", "orderby": "v"}
    limits = " ".join(guarantee(PostgresOptions.parse(given)).limits)
    assert "the later epoch wins" in limits
    assert "write=changes with sequenceby" in limits
    appended = guarantee(PostgresOptions.parse({**GOOD, "protocol": "wal"}))
    assert "later epoch" not in " ".join(appended.limits)
