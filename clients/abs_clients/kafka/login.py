"""Logins by token (SASL OAUTHBEARER): one object gives the token to both clients.

librdkafka calls ``Login.serve`` (its ``oauth_cb``) on a thread of its own, without ``poll``
(confluent-kafka 2.13 or newer); kafka-python calls ``Login.token`` at each connection, and before
the broker's ``connections.max.reauth.ms`` is over. A token is kept in memory only, and renewed after
80 % of its life; while the token server does not answer, the old one is used until it expires.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import kafka.errors

from abs_clients import logins
from abs_clients.extras import missing
from abs_clients.functions import Answer, StillRunningError, function_named
from abs_clients.kafka.login_rules import CALLABLE, MSK, OAUTH, extensions_in, mechanism_of
from abs_clients.kafka.oidc import SYSTEM, claims, fetch
from abs_clients.kafka.private import AbstractTokenProvider
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_clients.kafka.settings import Settings, without_secrets
from abs_clients.kafka.timeouts import CALL_SECONDS
from abs_clients.per_process import PerProcess
from abs_core.errors import AbsError, OptionError, RefusedError, UnavailableError
from abs_core.model import Finding

log = logging.getLogger(__name__)

RENEW_AT = 0.8
"""After this part of its life a token is renewed, as librdkafka does."""

OBTAIN_SECONDS = 30.0
"""For a token. A function or a token server that hangs would stop kafka-python's loop for ever."""

DOUBT_SECONDS = 10.0
"""A token that is older is renewed after a connection failed: the brokers may have refused it."""

SERVED_SECONDS = 5.0
"""How long a token is good by what librdkafka is told: an open client asks again before, and so gets
another one if the brokers take this one no longer."""

PAUSE_SECONDS = 1.0
"""Between two tries to renew a token that is still good."""

SERVED_BY_ITSELF = 0x020D0000
"""librdkafka 2.13: older bindings call ``oauth_cb`` from ``poll`` only, and nobody polls an admin."""

_MAX_SECONDS = 1e11
"""An expiry beyond it is in milliseconds."""

_TOKEN = re.compile(r"[\x20-\x7e]+")
"""What may stand in a token: the protocol of SASL ends its parts by a control character."""

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


@dataclass(frozen=True, slots=True)
class Token:
    """A token. Its ``repr`` does not show it (I9).

    Args:
        expires: seconds since 1970.
        principal: as librdkafka logs it; the broker goes by the token.
    """

    text: str = field(repr=False)
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Login(AbstractTokenProvider):  # type: ignore[misc] # kafka-python has no types
    """The login of one set of settings in this process. Thread-safe.

    Args:
        obtain: gets a new token; raises AbsError.
    """

    def __init__(self, obtain: Callable[[], Token]) -> None:
        self._obtain = obtain
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._due = self._obtained_at = 0.0
        self._asked: Answer[Token] | None = None
        self._failed: tuple[float, AbsError] | None = None
        """When the last try gave no token, and why; None if it gave one."""

    def current(self) -> Token:
        """A token that is good now.

        Raises:
            OptionError: the function or the signer cannot be used.
            RefusedError: the token server refuses.
            UnavailableError: it does not answer, and the last token has expired.
        """
        with self._lock:
            if self._token is None or time.time() >= self._due:
                self._renew()
            assert self._token is not None, "or its failure was raised"
            return self._token

    @property
    def failure(self) -> AbsError | None:
        """Why the last try gave no token; None if it gave one, or was before the call that fails now.

        A client that was idle asks for no token: what has failed long ago may have ended meanwhile.
        """
        failed = self._failed
        return None if failed is None or time.time() - failed[0] > CALL_SECONDS else failed[1]

    @property
    def outage(self) -> AbsError | None:
        """Why there is no good token now; None if there is one, or none was refused lately."""
        token = self._token
        return self.failure if token is None or token.expires <= time.time() else None

    def _renew(self) -> None:
        begun = time.time()
        try:
            token = self._obtained()
            if not begun < token.expires < _MAX_SECONDS:
                raise RefusedError(
                    "The token for Kafka has expired already, or its expiry is no time.",
                    remedy="check the clock of this machine, and the life of new tokens.",
                )
            if not isinstance(token.text, str) or _TOKEN.fullmatch(token.text) is None:
                raise RefusedError(
                    "What was obtained as a token for Kafka is none: it is empty, or holds other "
                    "characters than ASCII's printable ones.",
                    remedy="look what the token server, or the function, gives.",
                )
        except AbsError as error:
            level = logging.WARNING if self._failed is None else logging.DEBUG  # once an outage
            # Without its traceback, which refers to all that failed by it: sinks, and their clients.
            self._failed = time.time(), copy(error)
            if not error.retryable or self._token is None or self._token.expires <= begun:
                self._token = None
                raise
            log.log(level, "the token for Kafka is not renewed yet: %s", error)
            self._due = min(begun + PAUSE_SECONDS, self._token.expires)
            return
        self._token, self._failed, self._obtained_at = token, None, begun
        self._due = begun + RENEW_AT * (token.expires - begun)

    def _obtained(self) -> Token:
        """What ``obtain`` returns, within ``OBTAIN_SECONDS``: both clients' connections wait for it."""
        # One at a time: an earlier one may still be under way.
        asked = self._asked = self._asked or Answer(self._obtain, "abs-kafka-token")
        try:
            token = asked.within(OBTAIN_SECONDS)
        except StillRunningError:
            raise UnavailableError(
                f"No token for Kafka was obtained within {OBTAIN_SECONDS:g} s.",
                remedy="see whether the token server is up, and what the function waits for; nothing "
                "is lost.",
            ).of(SYSTEM) from None
        except BaseException:
            self._asked = None
            raise
        self._asked = None
        return token

    def token(self) -> str:
        """For kafka-python: the text of the token. Raises its own errors, which close a connection."""
        try:
            return self.current().text
        except AbsError as error:
            kind = kafka.errors.KafkaConnectionError
            if not error.retryable:
                kind = kafka.errors.SaslAuthenticationFailedError
            raise kind(str(error)) from error

    def extensions(self) -> dict[str, str]:
        """For kafka-python: the SASL extensions of the last token."""
        token = self._token
        return {} if token is None else dict(token.extensions)

    def serve(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """For librdkafka, as ``oauth_cb``; what it raises becomes an event of the client."""
        token = self.current()
        until = min(token.expires, time.time() + SERVED_SECONDS)
        return token.text, until, token.principal, dict(token.extensions)

    def doubt(self) -> None:
        """Obtain another token at the next use, if this one is not new; it stays good until then.

        A token may be revoked, or its key replaced, before it expires; kafka-python tells a refusal as
        a lost connection.
        """
        with self._lock:
            if time.time() - self._obtained_at > DOUBT_SECONDS:
                self._due = 0.0

    def close(self) -> None:
        """Forget the token: the brokers have refused it, say."""
        with self._lock:
            self._token = None


_logins: PerProcess[Settings, Login] = PerProcess(lambda settings: Login(_way(settings)))


def login_of(settings: Settings) -> Login | None:
    """The token login of these settings, one per process; None if they log in otherwise."""
    if mechanism_of(dict(settings.pairs)) not in (OAUTH, MSK):
        return None
    return _logins.of(settings)


def for_librdkafka(settings: Settings) -> dict[str, Any]:
    """The settings as librdkafka takes them: a token login is its ``oauth_cb``, with a token at hand.

    Raises as ``Login.current``.
    """
    pairs: dict[str, Any] = {n: v for n, v in settings.pairs if n != TWO_PHASE}
    login = login_of(settings)
    if login is None:
        return pairs
    if confluent_kafka.libversion()[1] < SERVED_BY_ITSELF:
        raise OptionError(
            f"confluent-kafka {confluent_kafka.libversion()[0]} cannot log in by token here.",
            remedy="install confluent-kafka 2.13 or newer on the driver and every executor.",
        )
    login.current()
    kept = {n: v for n, v in pairs.items() if not n.startswith(("sasl.oauthbearer.", "sasl.mech"))}
    return {**kept, "sasl.mechanism": OAUTH, CALLABLE: login.serve}


def _way(settings: Settings) -> Callable[[], Token]:
    pairs = dict(settings.pairs)
    if mechanism_of(pairs) == MSK:
        return lambda: _signed(settings)
    if CALLABLE in pairs:
        return lambda: _called(settings)
    return lambda: _of_oidc(settings)


def _of_oidc(settings: Settings) -> Token:
    pairs = dict(settings.pairs)
    text, expires = fetch(pairs)
    return Token(text, expires, settings.principal, dict(extensions_in(pairs)))


def _called(settings: Settings) -> Token:
    """The token of the job's own function, whose contract is that of confluent-kafka's ``oauth_cb``."""
    name = settings.get(CALLABLE) or ""
    config = settings.get("sasl.oauthbearer.config") or ""
    answer = _calling(
        f"The function kafka.{CALLABLE}={name}",
        lambda: function_named(f"kafka.{CALLABLE}", name)(config),
        settings,
    )
    if not _is_token(answer):
        raise OptionError(
            f"The function kafka.{CALLABLE}={name} returned {type(answer).__name__}, and not a token.",
            remedy="return (token, expiry in seconds since 1970), as confluent-kafka's oauth_cb "
            "does; a principal and a dict of extensions may follow.",
        )
    parts: tuple[Any, ...] = (*answer, *("", {})[len(answer) - 2 :])
    text, expires, principal, extensions = parts
    if expires > _MAX_SECONDS:
        raise OptionError(
            f"The function kafka.{CALLABLE}={name} returned its expiry in milliseconds.",
            remedy="divide it by 1000.",
        )
    return Token(text, float(expires), str(principal or ""), dict(extensions or {}))


def _is_token(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and 2 <= len(value) <= 4
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
    )


def _signed(settings: Settings) -> Token:
    """A token for Amazon MSK, signed on this machine with the credentials that boto3 finds."""
    region = _region(settings.bootstrap)
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise missing(error, f"kafka.sasl.mechanism={MSK}") or error from error
    text, expires_ms = _calling(
        "The signer for Amazon MSK",
        lambda: MSKAuthTokenProvider.generate_auth_token(region),
        settings,
    )
    return Token(text, expires_ms / 1000, settings.principal)


def _region(bootstrap: str) -> str:
    match = _REGION.search(bootstrap)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if match is None and not region:
        raise OptionError(
            f"kafka.bootstrap.servers does not tell the AWS region of {bootstrap}.",
            remedy="set AWS_REGION in the environment of the driver and of every executor.",
        )
    return match[1] if match is not None else str(region)


def _calling(caller: str, call: Callable[[], Any], settings: Settings) -> Any:
    try:
        return call()
    except AbsError:
        raise
    except (
        Exception
    ) as error:  # a function's own errors: most are a server that is away for a while
        raise UnavailableError(
            f"{caller} failed: {type(error).__name__}: {without_secrets(str(error), settings)}.",
            remedy="nothing is lost: it is called again; if it keeps failing, call it by hand.",
        ).of(SYSTEM) from error


def told_login(settings: Settings) -> Finding:
    """Who logs in, how, and until when; gets a token if there is none, as ``Login.current``."""
    where = f"Kafka at {settings.bootstrap}"
    pairs = dict(settings.pairs)
    mechanism = mechanism_of(pairs)
    if (login := login_of(settings)) is not None:
        token, who = login.current(), settings.principal
        with suppress(ValueError, KeyError, IndexError):  # what is no JWT names nobody
            who += f", subject {claims(token.text)['sub']}"
        return logins.told(where, f"{who} ({mechanism})", "its token", token.expires, renewed=True)
    if mechanism is not None:
        return logins.told(where, f"{settings.principal} ({mechanism})")
    path, pem = pairs.get("ssl.certificate.location"), pairs.get("ssl.certificate.pem")
    shows = settings.is_guarded and (path or pem)
    certificate = logins.certificate_in(path, pem) if shows else None
    if certificate is None:
        return logins.told(where, settings.principal)
    subject, expires = certificate
    return logins.told(where, f"{subject} (certificate)", "its certificate", expires)
