"""A register by its address, for jobs that have no sink of this project."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from abs_core.contracts import Inventory
from abs_core.errors import OptionError
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_sinks.door import format_at
from abs_sinks.urls import scheme_of

FOLDER = "file"


def open_register(address: str) -> Inventory:
    """The register at an address; does not connect.

    Args:
        address: a URL as the commands' ``--url`` takes it, or an absolute folder.

    Raises:
        OptionError: it is neither.
    """
    folder = folder_of(address)
    if folder is not None:
        return FileRegister(folder)
    system = format_at(address)
    return system.administer(system.at(address))[0]


def patience_with(address: str, seconds: float) -> Patience:
    """The patience with the user's function and the register's system, of which one is waited for."""
    folder = folder_of(address)
    register = format_at(address).at(address).patience.system if folder is None else str(folder)
    return Patience(seconds, system=f"the function write, or the register in {register}")


def folder_of(address: str) -> Path | None:
    """The folder that an address names; None if it names a system.

    Raises:
        OptionError: it is relative.
    """
    scheme = scheme_of(address)
    if scheme == FOLDER:
        return Path(unquote(urlsplit(address).path))
    if scheme or not address.startswith((".", "/", "~")):
        return None
    if not address.startswith("/"):
        raise OptionError(
            f"register={address!r} is a folder relative to where the driver was started.",
            remedy="give an absolute path, on a file system that the driver of each start has.",
        )
    return Path(address)
