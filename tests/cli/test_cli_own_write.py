"""Commands on a job with a write of its own: they have neither its rows nor its functions.

So none of them finishes what the job has begun: it is written by its query, or left by name.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from abs_core import ownwrite
from abs_core.certificate import MemoryCertificates
from abs_core.errors import (
    AbsError,
    ConfigError,
    IdentityError,
    OptionError,
    ProtocolError,
    RegisterLostError,
)
from abs_core.ownwrite import TARGET
from abs_sinks.register_at import open_register
from abs_spark.epochs import record
from tests.core.test_own_write import World
from tests.kit.command import abs_, abs_prints
from tests.planted import planted

G1 = 1 << 32


class Place:
    """A job's register, its target, and commands on the register.

    Args:
        address: of the register, as ``abs_spark.once`` takes it.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.world = World(register=open_register(address), target=TARGET)

    def begin(self, number: int) -> None:
        """Begin an epoch, and have its write fail."""
        self.world.fails = ValueError("the target is away")
        with pytest.raises(ProtocolError):
            self.world.run(f"begun {number}").write(number)

    def run(self, *words: str) -> str:
        return abs_prints(0, *words, "--url", self.address)

    def refused(self, *words: str) -> AbsError:
        error = abs_(*words, "--url", self.address).exception
        assert isinstance(error, AbsError), error
        return error

    def said(self, *words: str) -> str:
        """What a command prints for people, beside its result."""
        made = abs_(*words, "--url", self.address)
        assert made.exit_code == 0, (made.output, made.exception)
        return " ".join(made.stderr.split())


@pytest.fixture(params=["folder", pytest.param("postgresql", marks=pytest.mark.services)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(str(tmp_path / "register"))
    return Place(request.getfixturevalue("database"))


def test_its_register_is_shown_wherever_it_lies(place: Place) -> None:
    for number in range(2):
        place.world.run(f"run {number}").write(number)
    assert json.loads(place.run("register", "show", "job", "--json"))["frontier"] == 1
    [line] = json.loads(place.run("register", "list", "--json"))
    assert (line["job"], line["target"]) == ("job", TARGET)
    epochs = json.loads(place.run("epochs", "job", "--json"))["epochs"]
    assert [entry["epoch"] for entry in epochs] == [0, 1]
    assert {entry["rows"] for entry in epochs} == {None}, "nobody counted them"
    assert {at["rows"] for entry in epochs for at in entry["targets"]} == {None}
    assert "no rows" not in place.run("epochs", "job")
    [line] = json.loads(place.run("watch", "job", "--times", "1", "--json"))
    assert line["rows"] is None
    place.run("wait", "job", "--epoch", "1", "--timeout", "0")
    place.begin(2)
    made = abs_("epochs", "job", "--url", place.address)
    assert (made.exit_code, made.stderr.strip()) == (1, "decided but not finished epoch 2")
    listed = abs_("in-doubt", "list", "--url", place.address)
    assert (listed.exit_code, "epoch 2 of job job" in listed.stderr) == (1, True)


def test_the_check_finds_rows_that_nobody_has_counted(tmp_path: Path) -> None:
    with planted((record, "counted", lambda state, of: of.rows)):
        test_its_register_is_shown_wherever_it_lies(Place(str(tmp_path / "register")))


def test_what_is_begun_is_finished_by_its_query_alone(place: Place) -> None:
    place.world.run("one").write(0)
    place.begin(1)
    for words in (
        ("register", "rename", "job", "another"),
        ("register", "move", "job", "--to", f"{place.address}-another"),
        ("in-doubt", "commit", "job"),
        ("in-doubt", "abort", "job", "--fence"),
    ):
        if words[1] == "move" and not place.address.startswith("/"):
            continue
        assert "start the query once more" in place.refused(*words).remedy, words
    assert isinstance(place.refused("register", "retire", "job", "--yes"), ProtocolError)
    assert place.world.rows == {"row 0": 1}
    place.world.run("two").write(1)
    assert place.world.tokens[-1].version == G1 + (1 << 32) + 1, "of the first begin"
    assert place.world.rows == {"row 0": 1, "row 1": 1}
    place.run("register", "rename", "job", "another")


@pytest.mark.parametrize("act", ["reset", "remove"])
def test_a_job_that_is_given_up_tells_what_stays_in_its_target(place: Place, act: str) -> None:
    place.world.run("one").write(0)
    place.begin(1)
    version = place.world.tokens[-1].version
    said = place.said("job", act, "job", "--yes")
    assert f"epoch 1 of job was begun under version {version}: look whether" in said
    assert "the target keeps the version of application job" in said
    assert place.world.register.load("job") is None
    # What it says of the next start is so; and without the version the job begins anew.
    place.world.certificates = MemoryCertificates()
    with pytest.raises(RegisterLostError):
        place.world.run("two", "new query").write(0, "new")
    del place.world.versions["job"]
    place.world.run("three", "new query").write(0, "new")
    assert place.world.rows == {"row 0": 1, "new": 1}


def test_the_audit_is_not_clean_while_a_batch_is_begun_and_not_finished(
    place: Place, tmp_path: Path
) -> None:
    folder, expected = tmp_path / "table", tmp_path / "expected.json"
    write_deltalake(folder, pa.table({"account": [1, 2], "amount": [10, 20]}))
    expected.write_text('{"account": 1, "amount": 10}\n{"account": 2, "amount": 20}\n')
    sides = ("--expected", expected, "--key", "account", "--actual", f"delta:{folder}")
    where = ("--register", place.address, "--job")
    place.world.run("one").write(0)
    abs_prints(0, "audit", *sides)
    abs_prints(0, "audit", *sides, *where, "job")
    place.begin(1)
    assert "1 open decision(s)" in abs_prints(1, "audit", *sides, *where, "job")
    lacking = abs_prints(1, "audit", *sides, *where, "another")
    assert "there is no register of job another" in lacking
    place.world.run("two").write(1)
    abs_prints(0, "audit", *sides, *where, "job")
    for words in (where[:2], (*where, "job", "--sinks", expected)):
        assert abs_("audit", *sides, *words).exit_code == 2


@pytest.mark.services
def test_a_register_moves_between_a_folder_and_a_system(tmp_path: Path, database: str) -> None:
    place, there = Place(str(tmp_path / "register")), Place(database)
    place.world.run("one").write(0)
    place.run("register", "move", "job", "--to", database)
    with pytest.raises(IdentityError, match="moved"):
        place.world.run("two").write(1)
    place.world.register = there.world.register
    place.world.run("three").write(1)
    there.run("register", "move", "job", "--to", place.address)
    place.world.register = open_register(place.address)
    place.world.run("four").write(2)
    assert place.world.rows == {"row 0": 1, "row 1": 1, "row 2": 1}


@pytest.mark.services
@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
@pytest.mark.parametrize("act", ["reset", "remove"])
def test_the_checks_find_commands_that_take_it_for_a_job_of_the_registers_system(
    place: Place, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownwrite, "TARGET", "another")
    with pytest.raises(AssertionError):
        test_a_job_that_is_given_up_tells_what_stays_in_its_target(place, act)


def test_another_jobs_register_is_not_moved_to_a_folder(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "register"))
    place.world.target = "elsewhere"
    place.world.run("one").write(0)
    error = place.refused("register", "move", "job", "--to", str(tmp_path / "other"))
    assert "only a job of abs_spark.once" in error.what
    assert not (tmp_path / "other").exists()


def test_a_folder_that_is_not_there_or_relative_is_told(tmp_path: Path) -> None:
    assert isinstance(Place(str(tmp_path / "no")).refused("register", "list"), ConfigError)
    assert isinstance(Place(str(tmp_path)).refused("register", "show", "job"), ConfigError)
    made = abs_("register", "list", "--url", "./register").exception
    assert isinstance(made, OptionError)
