"""Real servers in containers."""

from __future__ import annotations

from abs_services.contracts import KafkaService, PostgresService, S3Service, Way


class DockerServices:
    way = Way.DOCKER

    def postgres(self) -> PostgresService:
        raise NotImplementedError

    def kafka(self) -> KafkaService:
        raise NotImplementedError

    def s3(self) -> S3Service:
        raise NotImplementedError
