"""A broker with a listener for tokens (SASL OAUTHBEARER), checked by Kafka's own validator."""

from __future__ import annotations

from dataclasses import replace

from abs_services.native.kafka import NativeKafka, ServerIdentity
from abs_services.native.lifecycle import Command
from abs_services.processes import free_ports
from abs_services.settings import new_cluster_id
from tests.kit.token_server import TokenServer

REAUTH_SECONDS = 20
"""The broker's ``connections.max.reauth.ms``."""

_OAUTH = "org.apache.kafka.common.security.oauthbearer"


class TokenKafka(NativeKafka):
    """In a temporary folder; its first listener stays open, for the tests' own look.

    Args:
        server: makes the tokens. It must run when the broker starts, which reads its keys.
    """

    def __init__(self, server: TokenServer) -> None:
        port, controller, self._tokens = free_ports(3)
        super().__init__(identity=ServerIdentity(port, controller, new_cluster_id()))
        self._keys = f"{server.url}/jwks"

    @property
    def token_bootstrap(self) -> str:
        """host:port of the listener for tokens (``sasl_plaintext``)."""
        return f"127.0.0.1:{self._tokens}"

    def _set_up(self) -> Command:
        found = super()._set_up()
        java, *rest = found.argv
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys}"
        return replace(found, argv=[java, allowed, *rest])

    def _properties(self) -> dict[str, str]:
        found = super()._properties()
        own = "listener.name.tokens.oauthbearer"
        return {
            **found,
            "listeners": f"{found['listeners']},TOKENS://{self.token_bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "TOKENS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{own}.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{own}.sasl.server.callback.handler.class": f"{_OAUTH}"
            ".OAuthBearerValidatorCallbackHandler",
            # By default Kafka 4.1.1 takes the validator of clients, which looks at no signature.
            "sasl.oauthbearer.jwt.validator.class": f"{_OAUTH}.BrokerJwtValidator",
            "sasl.oauthbearer.jwks.endpoint.url": self._keys,
            "sasl.oauthbearer.expected.audience": "kafka",
            f"{own}.connections.max.reauth.ms": str(REAUTH_SECONDS * 1000),
        }
