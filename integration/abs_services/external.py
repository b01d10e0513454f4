"""Servers that somebody else runs: found by environment variables, never stopped from here."""

from __future__ import annotations

from abs_services.contracts import KafkaService, PostgresService, S3Service, Way


class ExternalServices:
    way = Way.EXTERNAL

    def postgres(self) -> PostgresService:
        raise NotImplementedError

    def kafka(self) -> KafkaService:
        raise NotImplementedError

    def s3(self) -> S3Service:
        raise NotImplementedError
