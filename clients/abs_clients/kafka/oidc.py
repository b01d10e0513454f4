"""Gets a token by OpenID Connect's client credentials grant (RFC 6749, section 4.4).

The settings are librdkafka's; librdkafka itself would ask once per client, and give no reason.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, unquote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from abs_clients.causes import name_open_files
from abs_clients.kafka.login_rules import ID, SECRET, URL
from abs_core.errors import OptionError, RefusedError, TargetError, UnavailableError

SECONDS = 10.0
"""How long to wait for the token server: kafka-python's connections wait meanwhile."""

SYSTEM = "the token server"
_MAX_BYTES = 1 << 20
_PASSING = (408, 425, 429)
"""Answers that may differ the next time, as those from 500 on."""


class _NoRedirect(HTTPRedirectHandler):
    """A redirected request would take the client's secret to another server."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


def fetch(pairs: Mapping[str, str]) -> tuple[str, float]:
    """A new token, and when it expires (seconds since 1970).

    Raises:
        OptionError: the certificates of the settings cannot be read.
        RefusedError: the server refuses, its certificate is not accepted, or its answer holds no token.
        UnavailableError: it does not answer.
    """
    begun, where = time.time(), _place(pairs[URL])
    try:
        answer = _answer(pairs)
        text = answer["access_token"]
        if "expires_in" in answer:
            return text, begun + float(answer["expires_in"])
        return text, float(claims(text)["exp"])
    except HTTPError as error:
        with error:
            raise _refusal(where, error, pairs) from error
    except (OSError, HTTPException) as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            raise RefusedError(
                f"The certificate of the token server {where} is not accepted: {error}.",
                remedy="name the certificates of its authority: kafka.https.ca.location.",
            ).of(SYSTEM) from error
        raise name_open_files(
            UnavailableError(
                f"The token server {where} does not answer: {type(error).__name__}: {error}.",
                remedy=f"check that it is up, and check kafka.{URL}; nothing is lost.",
            ),
            error,
        ).of(SYSTEM) from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RefusedError(
            f"The answer of the token server {where} holds no token with an expiry.",
            remedy=f"check kafka.{URL}: it must be the endpoint for tokens.",
        ).of(SYSTEM) from error


def _answer(pairs: Mapping[str, str]) -> Any:
    """The server's answer.

    Id and secret are form-urlencoded (RFC 6749, 2.3.1). Not all servers decode them.
    """
    plain = f"{_first(pairs, ID)}:{_first(pairs, SECRET)}"
    encoded = ":".join(quote_plus(_first(pairs, names)) for names in (ID, SECRET))
    ways = [encoded, plain] if encoded != plain else [plain]
    opener = _opener(pairs)
    while True:
        who = ways.pop(0)
        try:
            with opener.open(_request(pairs, who), timeout=SECONDS) as response:
                return json.loads(response.read(_MAX_BYTES))
        except HTTPError as error:
            if not ways or error.code not in (400, 401):
                raise
            error.close()


def _request(pairs: Mapping[str, str], who: str) -> Request:
    form = {"grant_type": "client_credentials"}
    for name in ("scope", "audience"):
        if value := pairs.get(f"sasl.oauthbearer.{name}"):
            form[name] = value
    basic = base64.b64encode(who.encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    # The scheme is http or https (``login_rules``).
    return Request(pairs[URL], urlencode(form).encode(), headers)  # noqa: S310


def _first(pairs: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next(pairs[name] for name in names if pairs.get(name))


def _opener(pairs: Mapping[str, str]) -> Any:
    try:
        context = ssl.create_default_context(
            cafile=pairs.get("https.ca.location"), cadata=pairs.get("https.ca.pem")
        )
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The certificates of kafka.https.ca.* cannot be read: {type(error).__name__}.",
            remedy="name a file of PEM certificates that each machine of the job has.",
        ) from error
    return build_opener(_NoRedirect, HTTPSHandler(context=context))


def _refusal(where: str, error: HTTPError, pairs: Mapping[str, str]) -> TargetError:
    try:
        answer = json.loads(error.read(_MAX_BYTES))
        said = f": {answer['error']} {answer.get('error_description', '')}".rstrip()[:500]
        secret = _first(pairs, SECRET)
        for form in {secret, quote_plus(secret), unquote_plus(secret)}:
            said = said.replace(form, "***")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        said = ""
    sentence = f"The token server {where} answered {error.code}{said}."
    if error.code >= 500 or error.code in _PASSING:
        return UnavailableError(sentence, remedy="it is asked again; nothing is lost.").of(SYSTEM)
    return RefusedError(
        sentence,
        remedy=f"check kafka.sasl.oauthbearer.client.id, .client.secret, .scope, .audience "
        f"and kafka.{URL}.",
    ).of(SYSTEM)


def claims(token: str) -> dict[str, Any]:
    """The claims of a JWT, which is not verified: the broker does that.

    Raises ValueError, KeyError or IndexError for another token.
    """
    body = token.split(".")[1]
    values: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return values


def _place(url: str) -> str:
    """Host and port: the rest may hold a secret (I9)."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
