"""Which ways to log in ``kafka.*`` settings may name, checked before anything is connected.

Two clients share each login (librdkafka, and kafka-python, which ends transactions), so a way that only
one of them knows is refused by name, with the way to take instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from abs_clients.functions import NAMED, is_function_name
from abs_clients.options import Problems

OAUTH, MSK = "OAUTHBEARER", "AWS_MSK_IAM"
CALLABLE = "oauth_cb"
"""The setting that names a function for tokens; confluent-kafka's name for it."""

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

BY_OIDC = (
    "set kafka.sasl.mechanism=OAUTHBEARER and kafka.sasl.oauthbearer.method=oidc, with "
    "kafka.sasl.oauthbearer.client.id, .client.secret, .scope and .token.endpoint.url; or "
    f"kafka.{CALLABLE}=module:function, a function of yours that returns the token."
)
BY_MSK = f"set kafka.sasl.mechanism={MSK} (pip install 'abs-sinks[msk]')."
BY_PASSWORD = "set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password."  # noqa: S105 - no password
NO_KERBEROS = (
    "Kerberos (GSSAPI) is not supported: ask for a listener with SCRAM, OAUTHBEARER or client "
    "certificates (kafka.security.protocol=ssl)."
)

ID = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
SECRET = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")
"""The names of each; of two that are given the first counts, as in librdkafka."""

URL = "sasl.oauthbearer.token.endpoint.url"
EXTENSIONS = "sasl.oauthbearer.extensions"

_OTHER_GRANTS = ("sasl.oauthbearer.assertion.", "sasl.oauthbearer.metadata.")
_MODULES = {
    "IAMLoginModule": BY_MSK,
    "IAMClientCallbackHandler": BY_MSK,
    "OAuthBearer": BY_OIDC,
    "Krb5LoginModule": NO_KERBEROS,
    "ScramLoginModule": BY_PASSWORD,
    "PlainLoginModule": BY_PASSWORD,
}


def mechanism_of(pairs: Mapping[str, str]) -> str | None:
    """The SASL mechanism in capitals, GSSAPI by default; None if the protocol has no SASL."""
    if not pairs.get("security.protocol", "plaintext").strip().lower().startswith("sasl"):
        return None
    return pairs.get("sasl.mechanism", pairs.get("sasl.mechanisms", "GSSAPI")).strip().upper()


def javas_equivalent(value: str) -> str | None:
    """What to set instead of Java's ``sasl.jaas.config`` or callback handler; None if it is unknown."""
    return next((remedy for module, remedy in _MODULES.items() if module in value), None)


def check_login(pairs: Mapping[str, str], problems: Problems) -> None:
    """Note a login that the two clients do not share, or that lacks a part."""
    mechanism = mechanism_of(pairs)
    if mechanism == "GSSAPI":
        problems.add("kafka.sasl.mechanism is GSSAPI, or missing.", NO_KERBEROS)
    elif mechanism == OAUTH:
        _check_token(pairs, problems)
    elif mechanism is not None and mechanism not in (MSK, *PASSWORDS):
        problems.add(
            f"kafka.sasl.mechanism={mechanism[:100]} is not supported.",
            f"use one of {', '.join(PASSWORDS)}, {OAUTH} and {MSK}, or certificates "
            "(kafka.security.protocol=ssl).",
        )
    elif CALLABLE in pairs:
        problems.add(
            f"kafka.{CALLABLE} gives tokens, and nothing here asks for one.",
            "set kafka.security.protocol=sasl_ssl and kafka.sasl.mechanism=OAUTHBEARER.",
        )


def _check_token(pairs: Mapping[str, str], problems: Problems) -> None:
    method = pairs.get("sasl.oauthbearer.method", "default").strip().lower()
    function = pairs.get(CALLABLE)
    if function is not None and not is_function_name(function):
        problems.add(
            f"kafka.{CALLABLE} must be {NAMED}, not {function[:100]!r}.",
            "name a function that every machine of the job can import.",
        )
    if (function is None) == (method != "oidc"):
        fault = "gives no way" if function is None else "gives two ways"
        problems.add(f"kafka.sasl.mechanism={OAUTH} {fault} to a token.", BY_OIDC)
    if method != "oidc":
        return
    grant = pairs.get("sasl.oauthbearer.grant.type", "client_credentials")
    if grant != "client_credentials" or any(n.startswith(_OTHER_GRANTS) for n in pairs):
        problems.add(
            "Of OIDC only the client credentials grant is supported, and neither assertions nor "
            "metadata services.",
            f"leave kafka.sasl.oauthbearer.grant.type and .assertion.* out, or set kafka.{CALLABLE}.",
        )
    for names in (ID, SECRET, (URL,)):
        if not any(pairs.get(name) for name in names):
            problems.add(f"kafka.{names[-1]} is missing.", BY_OIDC)
    if not _is_url(pairs.get(URL, "https://host")):
        problems.add(
            f"kafka.{URL} is not an https:// or http:// URL without a password.", "correct it."
        )
    for part in extensions_in(pairs):
        if not all(part):
            problems.add(
                f"kafka.{EXTENSIONS} is not name=value, separated by commas.", "correct it."
            )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            bool(parts.hostname) and parts.scheme in ("https", "http") and "@" not in parts.netloc
        )
    except ValueError:
        return False


def extensions_in(pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """The SASL extensions; a malformed one has an empty part."""
    parts = [part for part in pairs.get(EXTENSIONS, "").split(",") if part.strip()]
    return [(n.strip(), v.strip()) for n, _, v in (part.partition("=") for part in parts)]
