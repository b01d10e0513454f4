"""Certificates of clients, by the command ``openssl``: for brokers that let nobody in without."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.kit.kafka_secured import SecuredKafka
from tests.sinks.kafka.secured import SECONDS, Principals, allow
from tests.sinks.kafka.test_kafka_secured import NEEDED, READS, SIDE

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Certified:
    """A client with a certificate.

    Args:
        principal: what a broker takes it for.
        certificate, key: PEM files.
        locked: the key again, behind ``password``.
    """

    principal: str
    certificate: Path
    key: Path
    locked: Path
    password: str

    def client(self, kafka: SecuredKafka) -> dict[str, str]:
        """The ``kafka.*`` settings by which it comes in, without prefix."""
        return {
            "bootstrap.servers": kafka.certificate_bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(kafka.authority),
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
        }


class Authority:
    """Vouches for clients, with files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        name = f"/CN=test authority {secrets.token_hex(4)}"
        made = ("-nodes", "-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_KEY, *made, "-subj", name, "-days", "30")

    def new(self) -> Certified:
        """A client that it vouches for."""
        name = f"job-{secrets.token_hex(4)}"
        key, request, certificate, locked = (
            self._folder / f"{name}.{end}" for end in ("key", "csr", "pem", "locked.key")
        )
        asked = ("-nodes", "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}")
        _openssl("req", *_KEY, *asked)
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        _openssl("x509", "-req", "-in", str(request), *by, "-days", "30", "-out", str(certificate))
        password = secrets.token_urlsafe(12)
        lock = ("-topk8", "-in", str(key), "-out", str(locked), "-passout", f"pass:{password}")
        _openssl("pkcs8", *lock)
        return Certified(f"CN={name}", certificate, key, locked, password)


class Rotated:
    """The files of a client, and who it is by them."""

    def __init__(self, broker: SecuredKafka, authority: Authority, folder: Path) -> None:
        self._broker, self._authority = broker, authority
        self._now = self.new()
        certificate, key = folder / "client.pem", folder / "client.key"
        self.files = replace(self._now, certificate=certificate, key=key)
        self.put(self._now)
        self.client = self.files.client(broker)

    def new(self) -> Certified:
        """One that may do what is documented."""
        made = self._authority.new()
        needed = {each for protocol in NEEDED.values() for each in protocol}
        side = allow("TOPIC", SIDE, "DESCRIBE", "READ")
        Principals(self._broker).grant(made.principal, *needed, READS, side)
        return made

    def put(self, certified: Certified) -> None:
        """The key first, as many do: for a moment it does not fit the certificate."""
        shutil.copy(certified.key, self.files.key)
        shutil.copy(certified.certificate, self.files.certificate)

    def rotate(self) -> None:
        """Replace the files; what goes by the old ones may do nothing any more."""
        old, self._now = self._now, self.new()
        self.put(self._now)
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap})
        none: Any = None  # any: the stub says str
        all_of_it = AclBindingFilter(
            ResourceType.ANY,
            none,
            ResourcePatternType.ANY,
            f"User:{old.principal}",
            none,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        (deleted,) = admin.delete_acls([all_of_it]).values()
        assert deleted.result(SECONDS)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
