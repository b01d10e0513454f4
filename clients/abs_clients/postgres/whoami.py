"""Whom the server takes this process for, and until when, for ``abs doctor``."""

from __future__ import annotations

from abs_clients import logins
from abs_clients.postgres.address import Server
from abs_clients.postgres.connection import connect
from abs_clients.postgres.errors import translate_errors
from abs_core.model import Finding

_ASKED = """
    select session_user, case when isfinite(rolvaliduntil) then extract(epoch from rolvaliduntil) end,
        (select client_dn from pg_stat_ssl where pid = pg_backend_pid())
    from pg_roles where rolname = session_user
"""


def told_login(server: Server) -> Finding:
    """Who logs in, how, and until when; raises as ``connect``."""
    where, parameters = f"PostgreSQL at {server.address.place}", dict(server.address.parameters)
    with connect(server) as session, translate_errors("asking who is logged in"):
        row = session.execute(_ASKED).fetchone()
    assert row is not None, "a session's role exists"
    role, until, certified = row
    # Only if the server has asked for it: libpq takes one from its default place, too.
    found = logins.certificate_in(parameters.get("sslcert")) if certified else None
    if found is not None:
        subject, expires = found
        return logins.told(where, f"{role} (certificate {subject})", "its certificate", expires)
    how = "" if server.address.source is None else f" (option {server.address.source.option})"
    ends = None if until is None else float(until)
    return logins.told(where, f"{role}{how}", "its password (VALID UNTIL)", ends)
