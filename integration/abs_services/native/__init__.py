"""Real servers as processes of this machine, from Python wheels and jars: no container engine."""

from __future__ import annotations

from abs_services.contracts import KafkaService, PostgresService, S3Service, Way
from abs_services.native.postgres import NativePostgres


class NativeServices:
    """:class:`abs_services.Services`, natively: temporary and on a leash."""

    way = Way.NATIVE

    def postgres(self) -> PostgresService:
        return NativePostgres()

    def kafka(self) -> KafkaService:
        raise NotImplementedError

    def s3(self) -> S3Service:
        raise NotImplementedError


__all__ = ["NativePostgres", "NativeServices"]
