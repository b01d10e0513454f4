"""Parses a libpq URI or keyword string, or a JDBC URL, to libpq's parameters.

No given address is shown: it can contain a password (I9). libpq's own messages quote a malformed
one, so they are not passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from abs_clients.postgres.password import PasswordSource
from abs_core.errors import OptionError

_JDBC = "jdbc:"

_JDBC_ONLY = {
    "ssl": "sslmode=verify-full",
    "sslfactory": "sslmode and sslrootcert",
    "sslpasswordcallback": "sslpassword",
    "gssencmode": "gssencmode",
    "logintimeout": "the option connecttimeout",
    "connecttimeout": "the option connecttimeout",
    "sockettimeout": "tcp_user_timeout (milliseconds)",
    "tcpkeepalive": "keepalives=1",
    "applicationname": "nothing: the sink names its sessions itself",
    "currentschema": "the schema in the option dbtable, or options=-csearch_path=...",
    "targetservertype": "target_session_attrs=read-write",
    "loadbalancehosts": "load_balance_hosts=random",
    "rewritebatchedinserts": "nothing: rows are sent by binary COPY",
    "preparethreshold": "nothing: rows are sent by binary COPY",
    "defaultrowfetchsize": "nothing: the sink reads no rows",
    "stringtype": "nothing: types are checked against the table",
    "readonly": "nothing: the sink writes",
    "kerberosservername": "krbsrvname",
    "jaasapplicationname": "nothing: libpq reads the credential cache itself",
}
"""Parameters of pgJDBC that libpq does not have, in lower case, and what to write for each."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server and a database, with credentials.

    ``parameters`` are libpq's, sorted, and hidden from ``repr``; ``source`` gives a password for each
    connection.
    """

    parameters: tuple[tuple[str, str], ...] = field(repr=False)
    source: PasswordSource | None = None

    @classmethod
    def parse(
        cls,
        url: str,
        user: str | None = None,
        password: str | None = None,
        source: PasswordSource | None = None,
    ) -> Address:
        """Parse the option ``url``; ``user`` and ``password`` take precedence over its parts.

        Raises:
            OptionError: it is not a libpq URI, keyword string or JDBC URL, names no database, or has a
                parameter of the JDBC driver only (the message has libpq's).
        """
        text = url.strip()
        if text.lower().startswith(_JDBC):
            text = _from_jdbc(text[len(_JDBC) :])
        try:
            parsed = conninfo_to_dict(text)
        except psycopg.Error:
            # From None: the driver's message can quote the address, password and all.
            raise OptionError(
                "The option url is not a connection string that libpq can read (it is not shown "
                "here, because it can contain a password).",
                remedy="write postgresql://host:5432/database, or host=... dbname=...; in a URI, "
                "percent-encode special characters of user and password.",
            ) from None
        values = {name: str(value) for name, value in parsed.items() if value is not None}
        if "://" in url and _is_cut_wrong(url.strip(), values):
            raise OptionError(
                "The user or password in the option url holds a character that ends it, such as @ or "
                "/ (the url is not shown here).",
                remedy="percent-encode it (@ is %40, / is %2F), or give the options user and "
                "password.",
            )
        if user is not None:
            values["user"] = user
        if password is not None:
            values["password"] = password
        if "dbname" not in values and "service" not in values:
            raise OptionError(
                "The option url names no database.",
                remedy="write it after the host: postgresql://host:5432/database.",
            )
        if source is not None and "password" in values:
            raise OptionError(
                f"A password is given beside the option {source.option}.",
                remedy="give one of them.",
            )
        return cls(tuple(sorted(values.items())), source)

    def conninfo(self, **more: str) -> str:
        """libpq's keyword string, with further parameters. Contains the password: never show it.

        Raises as ``PasswordSource.obtain``.
        """
        values = dict(self.parameters)
        if self.source is not None:
            values["password"] = self.source.obtain(values)
        return make_conninfo("", **{**values, **more})

    @property
    def label(self) -> str:
        """For people: user, host, port and database, without the password."""
        user = dict(self.parameters).get("user")
        return f"{f'{user}@' if user else ''}{self._where}"

    @property
    def place(self) -> str:
        """For people: ``postgresql://host:port/database``, without user and password."""
        return f"postgresql://{self._where}"

    @property
    def _where(self) -> str:
        values = dict(self.parameters)
        host = values.get("host") or values.get("hostaddr") or "local socket"
        port = f":{values['port']}" if "port" in values else ""
        return f"{host}{port}/{values.get('dbname', '')}"


def _is_cut_wrong(uri: str, values: dict[str, str]) -> bool:
    """Whether libpq took a part of a password with @ or / for host, port or database.

    Those are shown to people. A host that begins with @ is an abstract socket. An @ in the query
    may be that of a user's name (``user=a@b``), or the end of the password.
    """
    place, _, query = uri.partition("://")[2].partition("?")
    authority, _, path = place.partition("/")
    behind = query.partition("@")
    return (
        authority.count("@") > 1
        or any("@" in host[1:] for host in values.get("host", "").split(","))
        or any(port and not port.isdecimal() for port in values.get("port", "").split(","))
        or "@" in path
        or (bool(behind[1]) and ("@" in authority or "/" in behind[2]))
    )


def _from_jdbc(rest: str) -> str:
    """The libpq URI of the part after ``jdbc:``."""
    scheme, _, place = rest.partition(":")
    if scheme.lower() != "postgresql":
        raise OptionError(
            "The option url is a JDBC URL of another database than PostgreSQL.",
            remedy="write postgresql://host:5432/database.",
        )
    place, _, query = place.partition("?")
    if not place.startswith("//"):
        # jdbc:postgresql:database and jdbc:postgresql:/ mean the local host.
        place = f"//localhost/{place.lstrip('/')}"
    parameters = parse_qsl(query, keep_blank_values=True)
    libpq = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    for name, _value in parameters:
        if name in libpq:
            continue
        instead = _JDBC_ONLY.get(name.lower())
        if instead is None:
            # Its name is not shown: it can be what follows the & in a password.
            raise OptionError(
                "The option url contains a parameter that libpq, which this sink connects with, "
                "does not have.",
                remedy="leave it out, or see libpq's list of connection parameters; in a password, "
                "percent-encode & as %26.",
            )
        raise OptionError(
            f"The parameter {name} in the option url belongs to the JDBC driver; this sink connects "
            "by libpq.",
            remedy=f"write instead: {instead}.",
        )
    tail = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"postgresql:{place}{tail}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server and a database.

    Args:
        address: with credentials; hidden from ``repr``.
        locktimeout: seconds that a statement waits for a lock.
        connecttimeout: seconds to wait for a connection.
        standbytimeout: seconds that a commit waits for a synchronous standby.
    """

    address: Address
    locktimeout: float = 10.0
    connecttimeout: float = 10.0
    standbytimeout: float = 180.0

    @classmethod
    def at(cls, url: str, user: str | None = None, password: str | None = None) -> Self:
        """The server at a libpq URI, keyword string or JDBC URL; see ``Address.parse``."""
        return cls(Address.parse(url, user, password))
