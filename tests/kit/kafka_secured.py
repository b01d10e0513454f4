"""A broker with more listeners: SCRAM passwords (with and without TLS), client certificates, ACLs.

The first listener stays open and without restrictions: create users and ACLs through it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from abs_services.java import find_java
from abs_services.native.kafka import NativeKafka, ServerIdentity
from abs_services.native.lifecycle import Command
from abs_services.processes import clean_environment, free_ports, run_tool
from abs_services.settings import new_cluster_id

MECHANISM = "SCRAM-SHA-512"

AUTHORITY = "ca.pem"
"""The file of the broker's folder that clients trust; the broker's certificate is its own authority."""

_STORE = "broker.p12"


class SecuredKafka(NativeKafka):
    """A broker in a temporary folder with listeners for passwords and certificates.

    Args:
        clients: certificates (PEM) of the authorities for client certificates; None: no such listener.
    """

    def __init__(self, clients: Path | None = None) -> None:
        port, controller, self._secured, self._password, self._certificate = free_ports(5)
        super().__init__(identity=ServerIdentity(port, controller, new_cluster_id()))
        self._clients = clients
        self._store_password = ""

    @property
    def secured_bootstrap(self) -> str:
        """host:port of the listener with passwords over TLS (``sasl_ssl``)."""
        return f"127.0.0.1:{self._secured}"

    @property
    def password_bootstrap(self) -> str:
        """host:port of the listener with passwords, without TLS (``sasl_plaintext``)."""
        return f"127.0.0.1:{self._password}"

    @property
    def certificate_bootstrap(self) -> str:
        """host:port of the listener for client certificates (``ssl``)."""
        return f"127.0.0.1:{self._certificate}"

    @property
    def authority(self) -> Path:
        """``ssl.ca.location`` for clients of the TLS listeners."""
        return self.folder / AUTHORITY

    def _set_up(self) -> Command:
        if not self._store_password:
            self._store_password = make_certificate(find_java(), self.folder)
        return super()._set_up()

    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        listeners = [f"SECURED://{self.secured_bootstrap}", f"PASSWORD://{self.password_bootstrap}"]
        if self._clients is not None:
            listeners.append(f"CERTIFICATE://{self.certificate_bootstrap}")
        more = secured_settings(self.folder, self._store_password, self._clients)
        return {**found, **more, "listeners": ",".join([found["listeners"], *listeners])}


def make_certificate(java: Path, folder: Path) -> str:
    """Make key and certificate for 127.0.0.1 in the folder; returns the key store's password.

    Raises UnavailableError if Java's keytool fails.
    """
    password = secrets.token_urlsafe(16)
    store = ("-keystore", str(folder / _STORE), "-storetype", "PKCS12", "-alias", "broker")
    make = (
        *("-genkeypair", *store, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650"),
        *("-dname", "CN=abs-sinks test broker", "-ext", "san=ip:127.0.0.1,dns:localhost"),
        *("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign,digitalSignature"),
    )
    export = ("-exportcert", "-rfc", *store, "-file", str(folder / AUTHORITY))
    for arguments in (make, export):
        tool = str(java.resolve().with_name("keytool"))
        environment = {**clean_environment(), "ABS_STORE": password}
        run_tool(
            "keytool", [tool, *arguments, "-storepass:env", "ABS_STORE"], folder, env=environment
        )
    return password


def secured_settings(folder: Path, password: str, clients: Path | None = None) -> Mapping[str, str]:
    """Settings of the listeners SECURED, PASSWORD and CERTIFICATE, and of the authorizer.

    Args:
        password: of the key store in the folder.
        clients: certificates (PEM) of the authorities for client certificates; a client's principal
            is its subject (``User:CN=...``). None: no listener CERTIFICATE.
    """
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,PASSWORD:SASL_PLAINTEXT"
    shown = {} if clients is None else _mutual("listener.name.certificate", clients)
    return {
        "listener.security.protocol.map": f"{protocols},CERTIFICATE:SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": login,
        f"listener.name.password.{MECHANISM.lower()}.sasl.jaas.config": login,
        **_own("listener.name.secured", folder, password),
        **_own("listener.name.certificate", folder, password),
        **shown,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def _own(listener: str, folder: Path, password: str) -> Mapping[str, str]:
    """The broker's own key and certificate."""
    return {
        f"{listener}.ssl.keystore.type": "PKCS12",
        f"{listener}.ssl.keystore.location": str(folder / _STORE),
        f"{listener}.ssl.keystore.password": password,
        f"{listener}.ssl.key.password": password,
    }


def _mutual(listener: str, clients: Path) -> Mapping[str, str]:
    return {
        f"{listener}.ssl.client.auth": "required",
        f"{listener}.ssl.truststore.type": "PEM",
        f"{listener}.ssl.truststore.location": str(clients),
    }
