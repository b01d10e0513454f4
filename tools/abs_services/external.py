"""Servers that somebody else runs: found by environment variables, never stopped from here.

=================  =====================================================================
PostgreSQL         ``ABS_POSTGRES_URL`` (libpq URI); ``ABS_POSTGRES_ADMIN_URL`` where the
                   role of the first may not create databases
Kafka              ``ABS_KAFKA_BOOTSTRAP`` (host:port)
S3                 ``ABS_S3_ENDPOINT``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``;
                   optional ``ABS_S3_BUCKET`` (``abs``), ``AWS_DEFAULT_REGION``
=================  =====================================================================
"""

from __future__ import annotations

import os
from typing import NoReturn

import psycopg

from abs_core.errors import ConfigError, RefusedError, UnavailableError
from abs_services.buckets import takes_objects
from abs_services.contracts import (
    BUCKET,
    REGION,
    KafkaService,
    Kind,
    Outage,
    PostgresService,
    Provider,
    Running,
    S3Service,
    Service,
    Services,
)

_CONNECT_DEADLINE_S = 10


class ExternalService(Service):
    """An external server: ``start()`` checks that it answers, the rest does nothing.

    Raises ConfigError if its environment variables are missing, UnavailableError if it does not
    answer, RefusedError if it refuses the credentials.
    """

    controllable = False

    @property
    def is_running(self) -> bool:
        try:
            self.start()
        except (UnavailableError, RefusedError):
            return False
        return True

    @property
    def running(self) -> Running:
        return Running(self.kind, Provider.EXTERNAL, self.env)

    def stop(self) -> None:
        """Does nothing: it is not ours, and outlives this process anyway."""

    close = detach = stop

    def kill(self) -> None:
        raise _not_ours(self.kind)


class ExternalPostgres(ExternalService, PostgresService):
    @property
    def url(self) -> str:
        return _variable("ABS_POSTGRES_URL")

    @property
    def admin_url(self) -> str:
        return os.environ.get("ABS_POSTGRES_ADMIN_URL") or self.url

    def start(self) -> None:
        for url in {self.url, self.admin_url}:
            try:
                psycopg.connect(url, connect_timeout=_CONNECT_DEADLINE_S).close()
            except psycopg.OperationalError as error:
                # Refused during the handshake, psycopg has the server's text and no SQLSTATE. The
                # text is kept out of ours, as it may repeat the URL.
                if "FATAL" in str(error):
                    raise RefusedError(
                        "the PostgreSQL server that ABS_POSTGRES_URL names refuses the connection",
                        remedy="look at user, password and database in it.",
                    ) from None
                raise _silent("PostgreSQL server", "ABS_POSTGRES_URL") from None
            except psycopg.ProgrammingError:
                raise ConfigError(
                    "ABS_POSTGRES_URL is not a libpq URI",
                    remedy="write postgresql://user:password@host:port/database.",
                ) from None


class ExternalKafka(ExternalService, KafkaService):
    @property
    def bootstrap(self) -> str:
        return _variable("ABS_KAFKA_BOOTSTRAP")

    def start(self) -> None:
        try:
            from confluent_kafka import KafkaException
            from confluent_kafka.admin import AdminClient
        except ModuleNotFoundError as error:
            raise ConfigError(
                "the Python package confluent-kafka is not installed",
                remedy="pip install 'abs-sinks[kafka]'.",
            ) from error
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            admin.list_topics(timeout=_CONNECT_DEADLINE_S)
        except KafkaException as error:
            raise _silent("Kafka broker", "ABS_KAFKA_BOOTSTRAP") from error


class ExternalS3(ExternalService, S3Service):
    @property
    def endpoint(self) -> str:
        return _variable("ABS_S3_ENDPOINT")

    @property
    def bucket(self) -> str:
        return os.environ.get("ABS_S3_BUCKET") or BUCKET

    @property
    def keys(self) -> tuple[str, str]:
        return _variable("AWS_ACCESS_KEY_ID"), _variable("AWS_SECRET_ACCESS_KEY")

    @property
    def region(self) -> str:
        return os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or REGION

    def start(self) -> None:
        if not takes_objects(self):
            raise _silent("S3 server", "ABS_S3_ENDPOINT")


class ExternalServices(Services):
    """Services by environment variables."""

    provider = Provider.EXTERNAL
    postgres = ExternalPostgres
    kafka = ExternalKafka
    s3 = ExternalS3

    def is_up(self, running: Running) -> bool:
        return True

    def end(self, running: Running) -> None:
        """Does nothing."""

    def outage(self, running: Running, how: Outage) -> NoReturn:
        raise _not_ours(running.kind)


def _not_ours(kind: Kind) -> ConfigError:
    return ConfigError(
        f"the external {kind} is not ours to kill",
        remedy="use ABS_SERVICES=native or docker where servers are to fail.",
    )


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigError(
            f"ABS_SERVICES is external, and {name} is not set",
            remedy="set it, or set ABS_SERVICES to native or docker.",
        )
    return value


def _silent(server: str, variable: str) -> UnavailableError:
    return UnavailableError(
        f"the {server} that {variable} names does not answer",
        remedy="check that it runs, that the address is right, and that it accepts this client.",
    )
