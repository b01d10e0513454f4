"""A cluster is upgraded in place by pg_upgrade, 16 to 18: the job goes on by consent, nothing twice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from abs_services.native.lifecycle import as_account, read_private, write_private
from abs_services.native.postgres import NativePostgres, find_binaries, initialise
from abs_services.paths import Account
from abs_services.processes import free_port
from abs_sinks.postgres.testing import VARIANTS, TableHarness
from abs_testing.case import Case
from tests.sinks.postgres.test_pg_move import LEFT, NEXT, RIGHT, goes_on_by_consent

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(600)]


class Upgrade:
    """The two clusters of one upgrade, in folders that the servers' account can reach."""

    def __init__(self, old: NativePostgres) -> None:
        self.account = Account.for_servers()
        self.old = old
        self.folder = old.folder / "new"
        self.data = self.folder / "data"
        self.data.mkdir(parents=True)
        self.folder.chmod(0o711)
        self.data.chmod(0o700)
        self._own(self.data)
        self._new_cluster()

    def _own(self, path: Path) -> None:
        if self.account is not None:
            self.account.own(path)

    def _new_cluster(self) -> None:
        """An empty one, as pg_upgrade wants it; roles and passwords come from the old one."""
        binaries = find_binaries(self.account)
        initialise(binaries, self.data, admin_password="upgrade", account=self.account, sync=False)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("include = '../server.conf'\n")
        shutil.copy(self.old.folder / "server.conf", self.folder)
        # Another port: this process remembers which cluster it has met at the old one.
        known = read_private(self.old.folder / "identity.json")
        write_private(self.folder / "identity.json", {**known, "port": free_port()})
        for data in (self.old.data, self.data):  # pg_upgrade asks for no password
            hba = data / "pg_hba.conf"
            hba.write_text("local all postgres trust\n" + hba.read_text())

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """pg_upgrade, between two servers that are stopped."""
        binaries = find_binaries(self.account)
        command = [str(binaries / "pg_upgrade"), "-U", "postgres", *more]
        command += ["-b", str(find_binaries(self.account, 16)), "-B", str(binaries)]
        command += ["-d", str(self.old.data), "-D", str(self.data)]
        command += ["-s", str(self.old.socket_folder)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.data,
            **as_account(self.account),
        )


@pytest.mark.parametrize("name", ["2pc-append", "wal-upsert"])
@pytest.mark.parametrize("mode", ["--copy", "--link"])
def test_a_job_goes_on_in_a_cluster_that_pg_upgrade_has_made(name: str, mode: str) -> None:
    # The server's own database: what pg_upgrade has linked the old server cannot drop.
    with NativePostgres(major=16) as old:
        harness = TableHarness(old.url, VARIANTS[name])
        case = Case(harness)
        run = case.run()
        run.epoch(0, LEFT)
        run.epoch(1, RIGHT)
        run.attempt(2).write(*NEXT).pre_commit()
        old.stop()
        upgrade = Upgrade(old)
        checked = upgrade.run("--check")
        if name == "2pc-append":  # what is in doubt is a prepared transaction
            assert checked.returncode != 0
            assert "prepared transactions" in checked.stdout
        old.start()
        harness.reconnect()
        case.run().begin(2)  # the next start sweeps
        case.finished(LEFT, RIGHT, when="before the upgrade")
        case.close()
        old.stop()
        done = upgrade.run(mode)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        harness.db.close()
        with NativePostgres(upgrade.folder) as new:
            moved = harness.at(new.url)
            try:
                goes_on_by_consent(moved)
            finally:
                moved.close()
