"""The contract can fail on S3: defects that are planted in the sink are found by ``check_sink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import pytest

from abs_core.model import Committable, HandleName, Outcome
from abs_core.testing import check_sink
from abs_services import S3Service
from abs_sinks.s3 import sink
from abs_sinks.s3.committer import S3Committer
from abs_sinks.s3.markers import Markers
from abs_sinks.s3.objects import Objects
from abs_sinks.s3.pending import PendingUploads
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.testing import FolderHarness, open_folder
from abs_sinks.s3.uploads import Upload, Uploads
from abs_sinks.s3.writer_2pc import leave_open

pytestmark = [pytest.mark.services, pytest.mark.campaign]

Opener = Callable[[], AbstractContextManager[FolderHarness]]
Plant = Callable[[pytest.MonkeyPatch], None]


def completes_too_early(patch: pytest.MonkeyPatch) -> None:
    """Rows are there at pre-commit, before any decision."""

    def early(handle: HandleName, files: TaskFiles) -> Committable:
        committable = leave_open(handle, files)
        S3Committer(files._options).commit([committable])
        return committable

    patch.setattr(sink, "leave_open", early)


def takes_what_is_gone_for_committed(patch: pytest.MonkeyPatch) -> None:
    """An upload that was aborted counts as done."""

    def guess(self: PendingUploads, handle: HandleName, upload: Upload) -> Outcome:
        return Outcome.COMMITTED

    patch.setattr(PendingUploads, "_look_longer", guess)


def sweeps_whatever_it_finds(patch: pytest.MonkeyPatch) -> None:
    """Not by the exact handle: uploads of other jobs and of later runs go as well."""

    def abort(self: S3Committer, handles: Sequence[HandleName]) -> None:
        for pending in self._list():
            Uploads(self._options).abort(pending.key, pending.upload_id)

    patch.setattr(S3Committer, "abort", abort)


def puts_the_register_on_no_condition(patch: pytest.MonkeyPatch) -> None:
    """The last one to write wins."""

    def put(self: Objects, key: str, data: bytes, expected: str | None) -> str:
        return self.put(key, data)

    patch.setattr(Objects, "put_if", put)


def leaves_no_marker(patch: pytest.MonkeyPatch) -> None:
    """Nobody knows which objects a loser has left."""
    patch.setattr(Markers, "put", lambda self, handle, uploads: None)


BUGS: Mapping[str, tuple[Plant, Sequence[str]]] = {
    "completes too early": (completes_too_early, ["2pc"]),
    "takes what is gone for committed": (takes_what_is_gone_for_committed, ["2pc", "wal"]),
    "sweeps whatever it finds": (sweeps_whatever_it_finds, ["2pc"]),
    "puts the register on no condition": (
        puts_the_register_on_no_condition,
        ["2pc", "wal", "idempotent"],
    ),
    "leaves no marker": (leaves_no_marker, ["idempotent"]),
}


@pytest.mark.parametrize(
    ("bug", "protocol"), [(bug, way) for bug, (_, ways) in BUGS.items() for way in ways]
)
def test_the_contract_finds_a_planted_bug(
    bug: str,
    protocol: str,
    store: S3Service,
    given: Mapping[str, str],
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant, _ = BUGS[bug]
    plant(monkeypatch)
    where = f"s3://{store.bucket}/{prefix}"
    opener: Opener = partial(open_folder, where, {**given, "protocol": protocol})
    with pytest.raises(AssertionError) as found:
        check_sink(opener, at_once=6)
    print(f"{bug}, {protocol}: {str(found.value).splitlines()[0]}")
