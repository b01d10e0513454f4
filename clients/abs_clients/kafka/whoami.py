"""Whom the brokers take these settings for, and until when, for ``abs doctor``."""

from __future__ import annotations

from contextlib import suppress

from abs_clients import logins
from abs_clients.kafka.login import login_of
from abs_clients.kafka.login_rules import mechanism_of
from abs_clients.kafka.oidc import claims
from abs_clients.kafka.settings import Settings
from abs_core.model import Finding


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
    shown = pairs.get("ssl.certificate.location"), pairs.get("ssl.certificate.pem")
    found = logins.certificate_in(*shown) if any(shown) and settings.is_guarded else None
    if found is None:
        return logins.told(where, settings.principal)
    subject, expires = found
    return logins.told(where, f"{subject} (certificate)", "its certificate", expires)
