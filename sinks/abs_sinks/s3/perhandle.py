"""Objects of the state location that have the name of a handle: segments, and markers.

    <state>/<folder>/job=<job>/<handle><ending>

The name holds neither ``:`` nor ``%``: they are written ``=`` and ``!``, which no handle's name has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from abs_clients.s3.objects import Listed, Objects
from abs_core.model import HandleName
from abs_sinks.s3.layout import job_of, job_text
from abs_sinks.s3.options import S3Options


@dataclass(frozen=True, slots=True)
class PerHandle:
    """One kind of such objects, by its folder and ending."""

    folder: str
    ending: str

    def key(self, options: S3Options, handle: HandleName) -> str:
        """The key of the handle's object."""
        name = job_text(str(handle)).replace(":", "=")
        return options.state.key(self.folder, f"job={job_text(handle.job)}", f"{name}{self.ending}")

    def handle_of(self, key: str) -> HandleName | None:
        """The handle whose object has this key; None if there is none."""
        folder, _, name = key.rpartition("/")
        if not name.endswith(self.ending):
            return None
        handle = HandleName.parse(job_of(name.removesuffix(self.ending)).replace("=", ":"))
        if handle is None or not folder.endswith(f"{self.folder}/job={job_text(handle.job)}"):
            return None
        return handle

    def folder_of(self, options: S3Options, job: str | None) -> str:
        """The folder of a job's objects, or of all."""
        names = (self.folder, "") if job is None else (self.folder, f"job={job_text(job)}", "")
        return options.state.key(*names)

    def of_job(
        self, options: S3Options, job: str | None
    ) -> Iterator[tuple[HandleName, Listed, float]]:
        """The handles of a job, or of all: each with its object and the object's age in seconds."""
        now = datetime.now(UTC)
        for listed in Objects(options.bucket).list(self.folder_of(options, job)):
            handle = self.handle_of(listed.key)
            if handle is not None and job in (None, handle.job):
                yield handle, listed, max(0.0, (now - listed.modified).total_seconds())
