"""A broker with passwords and ACLs, and principals on it, for tests of what a job may do."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kit.kafka_secured import MECHANISM, SecuredKafka

SECONDS = 60.0


@dataclass(frozen=True)
class Allowed:
    """Operations on what has a name, or, with ``prefix``, on all whose name begins so."""

    kind: str
    name: str
    operations: tuple[str, ...]
    prefix: bool = False


def allow(kind: str, name: str, *operations: str) -> Allowed:
    """On names that end with ``*``: on all that begin so."""
    return Allowed(kind, name.removesuffix("*"), operations, name.endswith("*"))


class Principals:
    """Makes users on the broker, by its open listener."""

    def __init__(self, kafka: SecuredKafka) -> None:
        self._kafka = kafka
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def new(self, *allowed: Allowed) -> dict[str, str]:
        """A new user who may do this; the ``kafka.*`` settings by which it comes in, without prefix."""
        name, password = f"user-{secrets.token_hex(4)}", secrets.token_urlsafe(12)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion(name, info, password.encode())
        for future in self._admin.alter_user_scram_credentials([made]).values():
            future.result(SECONDS)
        self.grant(name, *allowed)
        return {
            "bootstrap.servers": self._kafka.secured_bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self._kafka.authority),
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": password,
        }

    def grant(self, user: str, *allowed: Allowed) -> None:
        """Allow a user more."""
        bindings = [
            AclBinding(
                ResourceType[each.kind],
                each.name,
                ResourcePatternType.PREFIXED if each.prefix else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
            for each in allowed
            for operation in each.operations
        ]
        if bindings:
            for future in self._admin.create_acls(list(dict.fromkeys(bindings))).values():
                future.result(SECONDS)
