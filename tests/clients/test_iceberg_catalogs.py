"""A catalog that cannot be opened is told by what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NotInstalledError

from abs_clients.iceberg import catalogs
from abs_clients.s3.server import Server
from abs_core.errors import ConfigError, RefusedError

SQL = (("type", "sql"), ("uri", "sqlite://"), ("warehouse", "s3://bucket/warehouse"))


@pytest.fixture(autouse=True)
def nothing_is_open() -> None:
    catalogs.opened.cache_clear()


@pytest.mark.parametrize(
    ("error", "what", "remedy"),
    [
        (NotInstalledError("SQLAlchemy support"), "needs a package", "abs-sinks[iceberg-sql]"),
        (ValueError("no such type"), "cannot be opened", "catalog.type"),
    ],
)
def test_a_catalog_that_the_library_cannot_open_is_told_with_what_it_needs(
    error: Exception, what: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(catalogs, "load_catalog", refuse)
    with pytest.raises(ConfigError, match=what) as refused:
        catalogs.opened(1, "prod", SQL, Server())
    assert remedy in refused.value.remedy


def test_a_store_without_credentials_is_refused_where_the_catalog_vends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RefusedError, match="no credentials"):
        catalogs.opened(1, "prod", SQL, Server("http://127.0.0.1:9", "us-east-1", pathstyle=True))
