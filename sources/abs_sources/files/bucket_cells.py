"""A log's cells in a bucket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from abs_clients.s3.objects import Objects
from abs_clients.s3.server import Bucket
from abs_core.errors import UnavailableError
from abs_core.patience import DEFAULT_PATIENCE


@dataclass(frozen=True)
class BucketCells:
    """One object per cell, put with ``If-None-Match: *``; ``SeenLog`` checks the server's support."""

    bucket: Bucket
    prefix: str

    @property
    def place(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    def names(self) -> set[str]:
        folder = f"{self.prefix}/"
        return {found.key[len(folder) :] for found in Objects(self.bucket).list(folder)}

    def get(self, name: str) -> bytes | None:
        found = Objects(self.bucket).get(self._key(name))
        return None if found is None else found.data

    def put_new(self, name: str, content: bytes) -> bool:
        patience = replace(DEFAULT_PATIENCE, system=f"S3 at {self.place}")
        return patience.retry(lambda: self._put(name, content))

    def delete(self, names: Iterable[str]) -> None:
        Objects(self.bucket).delete(self._key(name) for name in names)

    def _put(self, name: str, content: bytes) -> bool:
        """One request. It can be repeated safely: the content is this writer's alone."""
        lost = None
        try:
            if Objects(self.bucket).put_if(self._key(name), content, None) is not None:
                return True
        except UnavailableError as error:
            lost = error
        # It can be there by this request, or by an earlier one that arrived late.
        there = self.get(name)
        if there is None:
            raise UnavailableError(
                f"S3: it is unknown whether {self.place}/{name} was written."
            ) from lost
        return there == content

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"
