"""Servers that somebody else runs: found by environment variables, never stopped from here."""

from __future__ import annotations

from abs_services.contracts import KafkaService, Kind, PostgresService, Running, S3Service, Way


class DockerServices:
    way = Way.DOCKER

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting

    def postgres(self) -> PostgresService:
        raise NotImplementedError

    def kafka(self) -> KafkaService:
        raise NotImplementedError

    def s3(self) -> S3Service:
        raise NotImplementedError

    def is_up(self, running: Running) -> bool:
        return True

    def end(self, running: Running) -> None:
        """Nothing: it is not ours."""

    def delete_data(self, kind: Kind) -> None:
        """Nothing: it is not ours."""


def why_unusable() -> str:
    return "not built yet"
