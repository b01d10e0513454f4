"""Only the project's errors leave the sink: every exception of the driver has one."""

from __future__ import annotations

import pickle

import psycopg
import pytest
from psycopg import errors
from psycopg.sql import SQL

from abs_clients.postgres.errors import cannot_connect, to_abs_error, translate_errors
from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    DataError,
    RefusedError,
    RowError,
    SchemaError,
    TargetError,
    UnavailableError,
)

EVERY_STATE = sorted(
    value.sqlstate
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, psycopg.Error) and value.sqlstate
)


def test_every_sqlstate_that_the_driver_knows_is_mapped() -> None:
    assert len(EVERY_STATE) > 200
    for state in EVERY_STATE:
        error = to_abs_error(errors.lookup(state)("what the server said"), "testing")
        assert isinstance(error, TargetError | DataError), state
        assert state in str(error)
        assert "what the server said" in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_state_that_nobody_knows_is_a_target_error() -> None:
    class Unknown(psycopg.DatabaseError):
        sqlstate = "ZZ123"

    error = to_abs_error(Unknown("odd"), "testing")
    assert type(error) is TargetError


@pytest.mark.parametrize(
    ("state", "kind", "retryable"),
    [
        ("08006", UnavailableError, True),
        ("57P01", UnavailableError, True),
        ("53300", UnavailableError, True),
        ("55P03", ContentionError, True),
        ("40P01", ContentionError, True),
        ("40001", ContentionError, True),
        ("23505", RefusedError, False),
        ("28P01", RefusedError, False),
        ("42501", RefusedError, False),
        ("25006", RefusedError, False),
        ("53100", RefusedError, False),
        ("42P01", SchemaError, False),
        ("22P03", DataError, False),
        ("XX001", CorruptionError, False),
    ],
)
def test_what_each_kind_of_state_becomes(state: str, kind: type[AbsError], retryable: bool) -> None:
    error = to_abs_error(errors.lookup(state)("m"), "testing")
    assert isinstance(error, kind)
    assert error.retryable is retryable


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(psycopg).values() if isinstance(k, type) and issubclass(k, psycopg.Error)],
)
def test_every_class_of_the_driver_is_mapped_without_a_state(kind: type[psycopg.Error]) -> None:
    with pytest.raises(AbsError), translate_errors("testing"):
        raise kind("no state")


def test_a_lost_connection_is_unavailable() -> None:
    with (
        pytest.raises(UnavailableError, match="went away while testing") as caught,
        translate_errors("testing"),
    ):
        raise psycopg.OperationalError("server closed the connection unexpectedly")
    assert isinstance(caught.value.__cause__, psycopg.OperationalError)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("connection refused", UnavailableError),
        ("failed to resolve host 'x': Name or service not known", UnavailableError),
        ("FATAL:  the database system is starting up", UnavailableError),
        ("FATAL:  sorry, too many clients already", UnavailableError),
        ('FATAL:  password authentication failed for user "me"', RefusedError),
        ('FATAL:  database "x" does not exist', RefusedError),
        ('FATAL:  role "x" does not exist', RefusedError),
        ("FATAL:  no pg_hba.conf entry for host", RefusedError),
    ],
)
def test_a_connection_that_is_not_made(text: str, kind: type[AbsError]) -> None:
    assert isinstance(cannot_connect(psycopg.OperationalError(text), "me@h/db"), kind)


@pytest.mark.parametrize(
    "text", ["the server said no.", "it said:\nno.  ", "no", "is it running?..."]
)
def test_no_sentence_ends_twice(text: str) -> None:
    told = [
        to_abs_error(psycopg.OperationalError(text), "testing"),
        to_abs_error(psycopg.DataError(text), "testing"),
        to_abs_error(psycopg.InternalError(text), "testing"),
        to_abs_error(errors.lookup("42501")(text), "testing"),
        cannot_connect(psycopg.OperationalError(text), "me@h/db"),
        cannot_connect(psycopg.OperationalError(f"password authentication failed {text}"), "h/db"),
    ]
    for error in told:
        assert not [twice for twice in ("..", ". .", ":.", ".:") if twice in str(error)], str(error)


@pytest.mark.services
@pytest.mark.parametrize(
    "kind", ["mood", "integer", "numeric", "date", "timestamptz", "uuid", "inet", "jsonb", "mood[]"]
)
def test_a_value_that_its_type_does_not_take_is_named_by_the_type_and_not_shown(
    shared_database: str, kind: str
) -> None:
    cast = SQL("select %s::text::{}").format(SQL(f"pg_temp.{kind}" if "mood" in kind else kind))
    with psycopg.connect(shared_database) as session:
        session.execute("create type pg_temp.mood as enum ('glad')")
        with pytest.raises(psycopg.Error) as caught:
            session.execute(cast, ("{geheim}" if kind.endswith("]") else "geheim",))
    told = to_abs_error(caught.value, "writing")
    assert isinstance(told, RowError)
    assert "geheim" not in f"{told}{caught.value}"
