"""What is ours in a folder that all users share: nobody else can lead us astray there."""

from __future__ import annotations

import ast
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from abs_clients import ownfolder
from abs_clients.ownfolder import own_folder
from abs_core.errors import ConfigError
from abs_services.paths import cache_folder, shared_folder
from abs_sinks.kafka.orphans import Claim
from tests.planted import planted
from tests.roots import PRODUCT

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the machine, as /tmp is."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the victim's, with an old file."""
    folder = tmp_path / "home"
    folder.mkdir()
    thesis = folder / "thesis.txt"
    thesis.write_text("precious")
    os.utime(thesis, (0, 0))
    return folder


def _mine(shared: Path) -> Path:
    return shared / f"abs-sinks-{os.geteuid()}"


def _a_link_in_place_of_the_folder(shared: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    _mine(shared).symlink_to(home)


def _a_link_within(shared: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    _mine(shared).mkdir()
    (_mine(shared) / "kafka").symlink_to(home)


def _a_folder_open_to_all(shared: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    _mine(shared).mkdir()
    _mine(shared).chmod(0o777)


def _a_folder_of_another_user(shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    _mine(shared).mkdir()


def _a_file(shared: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    _mine(shared).write_text("")


def _no_sticky_bit(shared: Path, home: Path, _: pytest.MonkeyPatch) -> None:
    shared.chmod(0o777)


PLANTED = (
    *(_a_link_in_place_of_the_folder, _a_link_within, _a_folder_open_to_all),
    *(_a_folder_of_another_user, _a_file, _no_sticky_bit),
)
Plant = Callable[[Path, Path, pytest.MonkeyPatch], None]


@pytest.mark.parametrize("plant", PLANTED)
def test_what_another_user_has_planted_is_not_used(
    shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    plant(shared, home, monkeypatch)
    with pytest.raises(PermissionError):
        own_folder("kafka")
    Claim("0" * 16, "job", 1, "a" * 12).extend(0, 1)
    assert list(Claim("0" * 16, "job", 1, "b" * 12)._others()) == []
    assert [each.name for each in home.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("plant", [each for each in PLANTED if each is not _a_link_within])
def test_servers_use_none_of_it(
    shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    plant(shared, home, monkeypatch)
    with pytest.raises(ConfigError, match="point TMPDIR to another folder"):
        shared_folder()


@pytest.mark.parametrize("plant", PLANTED[:2])
def test_a_folder_that_is_not_looked_at_is_found(
    shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant
) -> None:
    """A planted bug: nobody looks whose folder it is."""
    (home / "kafka").mkdir()
    old = home / "thesis.txt"
    old.rename(home / "kafka" / old.name) if plant is PLANTED[0] else None
    plant(shared, home, monkeypatch)
    with planted((ownfolder, "check_own", lambda folder: None)):
        claim = Claim("0" * 16, "job", 1, "a" * 12)
        claim.extend(0, 1)
        claim.release()
        assert list(home.rglob("thesis.txt"))


def test_the_folder_is_private_and_made_once(shared: Path) -> None:
    made = own_folder("kafka")
    assert own_folder("kafka") == made == _mine(shared) / "kafka"
    assert [stat.S_IMODE(each.lstat().st_mode) for each in (made.parent, made)] == [0o711, 0o700]


def test_a_cache_in_a_shared_folder_is_the_users_own(
    shared: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_CACHE", str(shared / "cache"))
    assert cache_folder().is_dir()
    monkeypatch.setenv("ABS_CACHE", str(shared / "link"))
    (shared / "link").symlink_to(home)
    with pytest.raises(ConfigError, match="is a link"):
        cache_folder()


ALLOWED = {
    "clients/abs_clients/ownfolder.py": "the function itself",
    "sinks/abs_sinks/s3/taskfiles.py": "names the folder in a message",
    "sinks/abs_sinks/s3/segments.py": "names the folder in a message",
    "integration/abs_audit/s3.py": "names the folder in a message",
    "integration/abs_audit/workspace.py": "names the folder in a message",
    "tools/abs_demo/job.py": "names a folder of its own to a job as its temporary one",
    "tools/abs_services/paths.py": "names the folder in a message",
    "tools/abs_services/native/s3.py": "a server's own sockets, which are only deleted",
}


def shared_paths(text: str) -> Iterator[str]:
    """Where a module names a shared folder itself.

    The functions of ``tempfile`` that make a new name of mode 0700 or 0600 are safe.
    """
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr="gettempdir" | "mktemp" | "tempdir" | "gettempprefix"):
                yield f"line {node.lineno}: {node.attr}"
            case ast.ImportFrom(module="tempfile"):
                yield f"line {node.lineno}: from tempfile"
            case ast.Constant(value=str(value)) if value in ("TMPDIR", "TEMP") or any(
                value == each or value.startswith(f"{each}/")
                for each in ("/tmp", "/var/tmp", "/dev/shm")
            ):
                yield f"line {node.lineno}: {value}"


def test_no_other_module_names_a_shared_folder() -> None:
    users = {
        str(path.relative_to(ROOT)): list(shared_paths(path.read_text()))
        for part in PRODUCT
        for path in (ROOT / part).rglob("*.py")
    }
    assert {name for name, where in users.items() if where} == ALLOWED.keys()


@pytest.mark.parametrize(
    "text",
    [
        "import tempfile\nx = tempfile.gettempdir() + '/abs'",
        "from tempfile import gettempdir",
        "x = f'/tmp/abs-{1}'",
        "import os\nx = os.environ['TMPDIR']",
        "from pathlib import Path\nPath('/dev/shm/abs').mkdir()",
    ],
)
def test_a_module_that_names_one_is_found(text: str) -> None:
    assert list(shared_paths(text))
