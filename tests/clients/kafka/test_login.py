"""Logins by token: which settings they take, when a token is renewed, what is refused and how."""

from __future__ import annotations

import re
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_plus

import kafka.errors
import pytest
from confluent_kafka import KafkaError
from kafka.net.sasl.scram import ScramClient

from abs_clients import functions
from abs_clients.kafka import login
from abs_clients.kafka.configs import access_settings, admin_settings
from abs_clients.kafka.errors import is_auth_failure, to_abs_error
from abs_clients.kafka.login import Login, Token, login_of
from abs_clients.kafka.login_rules import ID, SECRET, URL
from abs_clients.kafka.oidc import fetch
from abs_clients.kafka.setting_table import SETTINGS, is_secret
from abs_clients.kafka.settings import Settings
from abs_core.errors import AbsError, OptionError, RefusedError, UnavailableError
from abs_services.registry import StandIn
from abs_sinks.kafka.options import KafkaOptions
from abs_sources.kafka.options import KafkaSourceOptions
from tests.kit.certificates import Certificate
from tests.kit.token_server import TokenServer
from tests.planted import planted

BASE = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
OIDC = BASE | {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "app",
    "sasl.oauthbearer.client.secret": "geheim",
    "sasl.oauthbearer.token.endpoint.url": "https://host/token",
}


def parsed(given: dict[str, str]) -> Settings:
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "2pc"}
    return KafkaOptions.parse(options | {f"kafka.{n}": v for n, v in given.items()}).kafka


def logged_in(server: TokenServer, client: str) -> tuple[Settings, Login]:
    """Settings that no other test has, and their login."""
    settings = Settings.of(server.settings("a:1") | {"client.id": f"{server.url}/{client}"})
    login = login_of(settings)
    assert login is not None
    return settings, login


def by(function: str, **more: str) -> Login:
    found = login_of(parsed({**BASE, "oauth_cb": f"tests.kit.token_functions:{function}", **more}))
    assert found is not None
    return found


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer(life=1000) as served:
        yield served


def login_at(server: TokenServer) -> Login:
    found = login_of(Settings.of(server.settings("a:1") | {"client.id": server.url}))
    assert found is not None
    found.close()
    return found


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (BASE, "gives no way"),
        (OIDC | {"oauth_cb": "m:f"}, "gives two ways"),
        (BASE | {"oauth_cb": "no function"}, "module:function"),
        (BASE | {"oauth_cb": "os.system"}, "module:function"),
        (OIDC | {"sasl.oauthbearer.client.secret": ""}, "client.secret is missing"),
        (OIDC | {"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "https://"),
        (OIDC | {"sasl.oauthbearer.token.endpoint.url": "https://u:p@host/"}, "without a password"),
        (OIDC | {"sasl.oauthbearer.extensions": "a=1,b"}, "name=value"),
        (OIDC | {"sasl.oauthbearer.grant.type": "jwt-bearer"}, "client credentials grant"),
        ({"oauth_cb": "m:f"}, "nothing here asks for one"),
        ({"security.protocol": "sasl_ssl"}, "GSSAPI"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "GSSAPI"}, "Kerberos"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "DIGEST-MD5"}, "DIGEST-MD5"),
    ],
)
def test_a_login_that_cannot_work_is_refused_before_anything_is_connected(
    given: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(given)
    assert named in str(caught.value)
    assert "geheim" not in str(caught.value)
    with pytest.raises(OptionError) as source:
        KafkaSourceOptions.parse(
            {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
            | {f"kafka.{n}": v for n, v in given.items()}
        )
    assert str(caught.value).partition(": ")[2] == str(source.value).partition(": ")[2]


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        ("org.x.OAuthBearerLoginModule required clientId='x';", "oauthbearer.method=oidc"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "AWS_MSK_IAM"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Kerberos"),
        ("org.x.scram.ScramLoginModule required;", "kafka.sasl.username"),
    ],
)
def test_a_jaas_line_of_java_is_refused_with_its_equivalent(value: str, instead: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed({"sasl.jaas.config": value})
    assert instead in str(caught.value)
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    with pytest.raises(OptionError, match="AWS_MSK_IAM"):
        parsed({"sasl.client.callback.handler.class": handler})


def test_both_clients_have_one_login_and_no_secret_of_it_is_in_their_settings(
    server: TokenServer,
) -> None:
    settings = Settings.of(server.settings("a:1"))
    own, others = admin_settings(settings), access_settings(settings)
    mine: Login = others["sasl_oauth_token_provider"]
    assert own["oauth_cb"].__self__ is mine
    assert mine is login_of(settings)
    assert len(server.tokens) == 1, "one token serves both"
    assert mine.token() == own["oauth_cb"]("")[0] == server.tokens[0]
    shown = f"{own} {others} {settings!r} {mine.current()!r}"
    assert server.secret not in shown
    assert server.tokens[0] not in shown


def test_a_token_is_renewed_after_four_fifths_of_its_life_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    made: list[str] = []

    def obtain() -> Token:
        made.append(f"token {len(made)}")
        return Token(made[-1], now + 100)

    monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda: now))
    mine = Login(obtain)
    for now, expected in ((1000, 0), (1079, 0), (1080, 1), (1159, 1), (1161, 2)):  # noqa: B007
        assert mine.token() == f"token {expected}"


@pytest.mark.parametrize(
    ("text", "expires"),
    [
        ("", 1e10),
        (None, 1e10),
        ("a\x01auth=Bearer b", 1e10),
        ("tökén", 1e10),
        ("token", float("nan")),
        ("token", float("inf")),
    ],
)
def test_what_is_no_token_or_ends_at_no_time_is_refused(text: str, expires: float) -> None:
    with pytest.raises(RefusedError, match="token for Kafka"):
        Login(lambda: Token(text, expires)).current()


def test_what_hangs_is_given_up_and_its_answer_is_taken_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login, "OBTAIN_SECONDS", 0.05)
    answers, asked = threading.Event(), []

    def obtain() -> Token:
        asked.append(1)
        assert answers.wait(60)
        return Token("token", time.time() + 100)

    mine = Login(obtain)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="within"):
            mine.current()
    monkeypatch.setattr(login, "OBTAIN_SECONDS", 60.0)
    answers.set()
    assert mine.token() == "token"
    assert len(asked) == 1


def test_a_function_may_be_named_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        EntryPoint("mine", "tests.kit.token_functions:whole", functions.GROUP),
        EntryPoint("broken", "tests.kit.token_functions", functions.GROUP),
    ]
    monkeypatch.setattr(
        functions, "entry_points", lambda *, group, name: [e for e in offered if e.name == name]
    )
    found = login_of(parsed({**BASE, "oauth_cb": "mine", "sasl.oauthbearer.config": "x"}))
    assert found is not None
    assert found.token() == "x"
    with pytest.raises(OptionError, match=functions.GROUP):
        parsed({**BASE, "oauth_cb": "broken"})


def test_a_token_is_used_until_it_expires_while_its_server_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    answers: list[Token | AbsError] = [Token("first", 1100.0)]

    def obtain() -> Token:
        found = answers[-1]
        if isinstance(found, AbsError):
            raise found
        return found

    monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda: now))
    mine = Login(obtain)
    assert mine.token() == "first"
    answers.append(UnavailableError("The token server is away."))
    now = 1099.0
    assert mine.token() == "first"
    now = 1100.5
    with pytest.raises(UnavailableError):
        mine.current()
    with pytest.raises(kafka.errors.KafkaConnectionError, match="away"):
        mine.token()
    answers.append(Token("second", 1200.0))
    assert mine.token() == "second"
    answers.append(RefusedError("no more"))
    now = 1190.0
    with pytest.raises(RefusedError):
        mine.current()


@pytest.mark.parametrize(
    ("status", "kind"), [(400, RefusedError), (401, RefusedError), (429, UnavailableError)]
)
def test_what_a_token_server_answers_is_told_by_kind(
    server: TokenServer, status: int, kind: type[AbsError]
) -> None:
    server.status = status
    with pytest.raises(kind, match=f"answered {status}: not_now"):
        login_at(server).current()


def test_a_wrong_secret_is_refused_and_not_shown(server: TokenServer) -> None:
    mine = login_at(server)
    right, server.secret = server.secret, "another"
    with pytest.raises(RefusedError, match="invalid_client") as caught:
        mine.current()
    assert right not in str(caught.value)


def test_a_redirection_is_not_followed_with_the_secret(server: TokenServer) -> None:
    with TokenServer() as other:
        server.redirect = f"{other.url}/token"
        with pytest.raises(RefusedError, match="answered 302"):
            login_at(server).current()
        assert not other.tokens


def test_a_server_that_is_away_or_is_none_is_told(server: TokenServer) -> None:
    mine = login_at(server)
    server.stop()
    with pytest.raises(UnavailableError, match=f"token server {server.url} does not answer"):
        mine.current()


def test_a_certificate_that_is_not_accepted_is_a_refusal_that_names_its_setting(
    tmp_path: Path,
) -> None:
    made = Certificate.make(tmp_path, "tokens")
    with StandIn(tls=made.server()) as served:
        pairs = {URL: f"{served.url}/token", ID[0]: "app", SECRET[0]: "geheim"}
        with pytest.raises(RefusedError, match=r"kafka\.https\.ca\.location") as refused:
            fetch(pairs)
        assert "geheim" not in str(refused.value)
        with pytest.raises(RefusedError, match="answered 404"):
            fetch({**pairs, "https.ca.location": str(made.certificate)})


@pytest.mark.parametrize(
    ("function", "kind", "named"),
    [
        ("in_milliseconds", OptionError, "milliseconds"),
        ("expired", RefusedError, "expired already"),
        ("nothing", OptionError, "returned NoneType"),
        ("failing", UnavailableError, "LookupError: 'no metadata service'"),
        ("not_there", OptionError, "cannot be imported"),
    ],
)
def test_what_a_function_does_wrong_is_told(
    function: str, kind: type[AbsError], named: str
) -> None:
    with pytest.raises(kind) as caught:
        by(function).current()
    assert named.replace("'", "") in str(caught.value).replace("'", "")


def test_a_function_gets_its_configuration_and_may_return_all_of_confluents_parts() -> None:
    mine = by("whole", **{"sasl.oauthbearer.config": "scope=x"})
    text, _, principal, extensions = mine.serve("")
    assert (text, principal, extensions) == ("scope=x", "me", {"logicalCluster": "lkc-1"})
    assert mine.extensions() == extensions


MSK = {"security.protocol": "sasl_ssl", "sasl.mechanism": "AWS_MSK_IAM"}
BROKERS = "b-1.demo.x.kafka.eu-west-1.amazonaws.com:9098"


def signing(monkeypatch: pytest.MonkeyPatch, sign: Callable[[str], tuple[str, int]]) -> None:
    """A stand-in for Amazon's package: this machine reaches no MSK."""
    module = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace(generate_auth_token=sign))
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)


def test_tokens_for_msk_are_signed_for_the_region_of_the_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    signing(monkeypatch, lambda region: (f"for {region}", round(time.time() * 1000) + 900_000))
    settings = parsed(MSK).with_(**{"bootstrap.servers": BROKERS})
    assert access_settings(settings)["sasl_mechanism"] == "OAUTHBEARER"
    given = admin_settings(settings)
    assert (given["sasl.mechanism"], given["oauth_cb"]("")[0]) == ("OAUTHBEARER", "for eu-west-1")
    elsewhere = login_of(parsed(MSK))
    assert elsewhere is not None
    with pytest.raises(OptionError, match="AWS_REGION"):
        elsewhere.current()
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert elsewhere.token() == "for us-east-2"


def test_msk_without_its_package_or_credentials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parsed(MSK).with_(**{"bootstrap.servers": BROKERS, "client.id": "no-package"})
    mine = login_of(settings)
    assert mine is not None
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(AbsError, match=r"abs-sinks\[msk\]"):
        mine.current()

    def lacking(region: str) -> tuple[str, int]:
        raise ValueError("no credentials")

    signing(monkeypatch, lacking)
    with pytest.raises(UnavailableError, match="no credentials"):
        mine.current()


def test_an_older_confluent_kafka_is_refused_by_name(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluent_kafka.libversion", lambda: ("2.12.2", 0x020C02FF))
    with pytest.raises(OptionError, match=r"2\.13 or newer"):
        admin_settings(Settings.of(server.settings("a:1")))


def test_a_refusal_of_a_running_client_is_tried_again_with_a_new_token(
    server: TokenServer,
) -> None:
    refusal = KafkaError(KafkaError._AUTHENTICATION, "refused")
    tokens = Settings.of(server.settings("a:1"))
    assert type(to_abs_error(refusal, "reading", tokens)) is UnavailableError
    assert type(to_abs_error(refusal, "connecting", tokens, new=True)) is RefusedError
    lacking = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: x")
    assert not is_auth_failure(lacking)
    assert type(to_abs_error(lacking, "reading")) is UnavailableError
    by_password = parsed(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
        }
    )
    assert type(to_abs_error(refusal, "reading", by_password)) is RefusedError
    mine = login_at(server)
    assert mine is not None
    server.status = 403
    other = Settings.of(server.settings("a:1") | {"client.id": server.url})
    with pytest.raises(RefusedError):
        mine.current()
    assert "answered 403" in str(to_abs_error(refusal, "reading", other))


def test_each_setting_of_the_table_stands_once_and_what_names_a_secret_is_one() -> None:
    names = [each.name for each in SETTINGS] + [java for each in SETTINGS for java in each.javas]
    assert len(names) == len(set(names))
    telling = ("password", "secret", ".pem", "username", "token.endpoint")
    for name in names:
        if any(word in name for word in telling):
            assert is_secret(name), name
    assert is_secret("sasl.some.new.key")
    assert not is_secret("some.new.ms")


class Decoding(TokenServer):
    """Decodes id and secret, as RFC 6749 has it, or does not; and wants an audience, or does not."""

    decodes = True
    wanted_audience: str | None = None

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        who, _, secret = b64decode(login.split()[1]).decode().partition(":")
        if self.decodes:
            who, secret = unquote_plus(who), unquote_plus(secret)
        if (who, secret) != (self.client, self.secret):
            return 401, {"error": "invalid_client", "error_description": f"not {secret}"}
        if form.get("audience", [None])[0] != self.wanted_audience:
            return 400, {"error": "invalid_request", "error_description": "the audience"}
        return 200, {"access_token": "e30.e30.", "expires_in": 60}


LOGINS = [
    ("app", "plain"),
    ("app", "a+b/c=%41:{x}"),
    ("https://host/app", "plain"),
    ("ä b", "ü&=%"),
    ("app", "100%25"),
]


@pytest.mark.parametrize("decodes", [True, False])
@pytest.mark.parametrize(("client", "secret"), LOGINS)
def test_any_id_and_secret_log_in_whether_the_server_decodes_them_or_not(
    client: str, secret: str, decodes: bool
) -> None:
    if ":" in client and not decodes:
        return  # nobody could tell where the id ends
    with Decoding() as server:
        server.client, server.secret, server.decodes = client, secret, decodes
        assert fetch(server.settings("a:1"))[0] == "e30.e30."
        wrong = server.settings("a:1") | {"sasl.oauthbearer.client.secret": f"{secret}x+y"}
        with pytest.raises(RefusedError) as refused:
            fetch(wrong)
        assert f"{secret}x" not in str(refused.value)


def test_a_token_is_asked_for_with_the_audience() -> None:
    with Decoding() as server:
        server.wanted_audience = "kafka-prod"
        with pytest.raises(RefusedError, match="the audience"):
            fetch(server.settings("a:1"))
        given = server.settings("a:1") | {"sasl.oauthbearer.audience": "kafka-prod"}
        assert fetch(given)[0] == "e30.e30."
        assert parsed(given).get("sasl.oauthbearer.audience") == "kafka-prod"
        assert "kafka-prod" in repr(parsed(given)), "neither it nor the scope is a secret"
        names = {each.split("=")[0] for each in admin_settings(parsed(given))}
        assert not {name for name in names if name.startswith("sasl.oauthbearer")}


@pytest.mark.parametrize("user", ["plain", "a,b", "a=b", "=2C", "ä,=,="])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_users_name_is_escaped_once_by_both_clients(user: str, mechanism: str) -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism}
    settings = parsed({**login, "sasl.username": user, "sasl.password": "geheim"})
    by_python = access_settings(settings)
    client = ScramClient(by_python["sasl_plain_username"], "geheim", mechanism)
    name = re.match(b"n,,n=([^,]*),r=", client.first_message())
    assert name is not None
    decoded = name[1].decode().replace("=2C", ",").replace("=3D", "=")
    assert decoded == user
    assert admin_settings(settings)["sasl.username"] == user, "librdkafka escapes it itself"


def test_a_password_that_is_sent_plainly_has_its_user_as_he_is() -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    settings = parsed({**login, "sasl.username": "a,b=c", "sasl.password": "geheim"})
    assert access_settings(settings)["sasl_plain_username"] == "a,b=c"


def test_a_token_is_replaced_when_a_connection_failed_that_may_have_been_refused(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, mine = logged_in(server, "doubt")
    first = mine.current()
    lost = kafka.errors.KafkaConnectionError("socket disconnected")
    to_abs_error(lost, "asking", settings)
    assert mine.current() == first, "it is new: it was no refusal"
    monkeypatch.setattr(login, "DOUBT_SECONDS", 0.0)
    to_abs_error(lost, "asking", settings)
    assert mine.current() != first
    assert len(server.tokens) == 2


def test_a_doubted_token_stays_while_no_other_is_to_be_had(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mine = logged_in(server, "away")
    first = mine.current()
    monkeypatch.setattr(login, "DOUBT_SECONDS", 0.0)
    server.status = 503
    mine.doubt()
    assert mine.current() == first


def test_a_token_that_nobody_doubts_is_found(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what it was before."""
    with planted((Login, "doubt", lambda self: None)):
        test_a_token_is_replaced_when_a_connection_failed_that_may_have_been_refused(
            server, monkeypatch
        )


def test_a_connection_that_ends_with_its_token_tells_why_there_is_no_other(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends the session, which kafka-python tells as a lost connection."""
    settings, mine = logged_in(server, "ends")
    lost = kafka.errors.KafkaConnectionError("socket disconnected")
    server.status, until = 503, mine.current().expires
    mine.doubt()
    assert "token" not in to_abs_error(lost, "asking", settings).what, "there is one that is good"
    monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda: until + 1))
    with pytest.raises(UnavailableError):
        mine.current()
    error = to_abs_error(lost, "asking", settings)
    assert isinstance(error, UnavailableError)
    assert "token server" in error.what
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")
    assert "token" not in to_abs_error(too_large, "sending", settings).what


def test_an_outage_of_long_ago_is_not_told_as_the_reason_of_a_later_error(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle client asks for no token: whether the token server is back, nobody knows."""
    settings, mine = logged_in(server, "idle")
    errors = {
        "socket disconnected": kafka.errors.KafkaConnectionError("socket disconnected"),
        "not allowed": KafkaError(KafkaError._AUTHENTICATION, "not allowed"),
    }
    server.status, until = 503, mine.current().expires + 1
    for age, told in ((0.0, True), (59.0, True), (61.0, False), (3600.0, False)):
        monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda: until))
        with pytest.raises(UnavailableError):
            mine.current()
        monkeypatch.setattr(login, "time", SimpleNamespace(time=lambda age=age: until + age))
        for said, error in errors.items():
            text = to_abs_error(error, "asking", settings).what
            assert [words in text for words in ("token server", said)] == [told, not told]
    server.status = 200
    monkeypatch.setattr(login, "time", time)
    mine.current()
    mine.close()
    assert mine.failure is mine.outage is None, "it has ended with the next token"


def test_an_old_outage_that_is_told_is_found(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a failure stays the reason until there is a token, whenever that is asked for."""
    with planted((login, "CALL_SECONDS", float("inf"))):
        test_an_outage_of_long_ago_is_not_told_as_the_reason_of_a_later_error(server, monkeypatch)
