"""An HTTP proxy before an S3 server that drops, delays, doubles and lies, on one kind of call.

Requests are told apart as the API reference names them. The signature covers the Host header, which
is passed on as it came, so the server takes what the proxy sends.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from urllib.parse import parse_qs, urlsplit

from abs_sinks.s3.options import S3Options
from abs_testing.calls import Again, Loss
from tests.kit.http import serving

ACCESS_DENIED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Fault(Enum):
    """What becomes of a request."""

    DROPPED = "it never arrives"
    UNANSWERED = "it takes effect, and the reply is lost"
    DELAYED = "it takes effect later, and nobody hears of it"
    DOUBLED = "it arrives twice; the second answer is given"
    LIED = "it never arrives, and another answer is given"
    LIED_AFTER = "it takes effect, and another answer is given"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def call(self) -> str:
        """The API's name of it; a put on a condition is ``PutIf``."""
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query:
            return "CreateMultipartUpload" if self.method == "POST" else "ListMultipartUploads"
        if "uploadId" in query:
            return {
                "PUT": "UploadPart",
                "POST": "CompleteMultipartUpload",
                "DELETE": "AbortMultipartUpload",
                "GET": "ListParts",
            }[self.method]
        if "list-type" in query:
            return "ListObjectsV2"
        names = {name.lower() for name in self.headers}
        if self.method == "PUT" and names & {"if-match", "if-none-match"}:
            return "PutIf"
        return {
            "GET": "GetObject",
            "HEAD": "HeadObject",
            "PUT": "PutObject",
            "DELETE": "DeleteObject",
            "POST": "DeleteObjects",
        }[self.method]


@dataclass(slots=True)
class Plan:
    """Which requests meet the fault.

    Args:
        call: its name; any call where it is empty.
        skip: how many of that call pass first.
        times: how many meet it then.
        answer: status and body of a lie.
    """

    call: str
    fault: Fault
    skip: int = 0
    times: int = 1
    answer: tuple[int, bytes] = (500, b"")
    met: int = 0


@dataclass(slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True)
class Proxy:
    """The running proxy. ``plan`` may be set at any time; ``order`` names the calls as they came.

    Args:
        denied: which requests are answered as those of somebody who has no right to make them.
    """

    endpoint: str
    server: str
    plan: Plan | None = None
    order: list[str] = field(default_factory=list)
    delayed: list[Request] = field(default_factory=list)
    again: Again[Request] | None = None
    denied: Callable[[Request], bool] = lambda request: False
    denial: bytes = ACCESS_DENIED
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, request: Request) -> Plan | None:
        """The plan, where this request meets its fault."""
        with self.lock:
            plan = self.plan
            self.order.append(request.call)
            late = None if self.again is None else self.again.meets(self.order, request)
        if late is not None:
            self.forward(late)
        with self.lock:
            if plan is None or plan.call not in ("", request.call):
                return None
            if plan.skip:
                plan.skip -= 1
                return None
            if plan.met == plan.times:
                return None
            plan.met += 1
            return plan

    def deliver(self) -> None:
        """What was delayed takes effect now."""
        while self.delayed:
            self.forward(self.delayed.pop(0))

    def forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self.server, timeout=30)
        try:
            connection.putrequest(
                request.method, request.path, skip_host=True, skip_accept_encoding=True
            )
            for name, text in request.headers.items():
                if name.lower() != "expect":
                    connection.putheader(name, text)
            connection.endheaders(request.body or None)
            reply = connection.getresponse()
            return Answer(reply.status, reply.getheaders(), reply.read())
        finally:
            connection.close()


def ends(call: str) -> bool:
    """Whether a call of this name ends an upload, or makes something visible."""
    return call in ("CompleteMultipartUpload", "PutIf", "AbortMultipartUpload", "DeleteObjects")


class ProxyCalls:
    """The proxy's requests as ``Calls`` of ``check_positions``."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        with self._proxy.lock:
            self._proxy.order.clear()
            self._proxy.delayed.clear()
            self._proxy.again = None
            fault = None if loss is None else _FAULTS[loss]
            self._proxy.plan = None if fault is None else Plan(name, fault, skip=number - 1)

    def repeat(self, name: str, number: int, before: str, nth: int) -> None:
        """See ``check_repeats.Repeating``."""
        self.arm(1, None)
        self._proxy.again = Again(name, number, before, nth)

    @property
    def repeated(self) -> bool:
        """See there."""
        return self._proxy.again is not None and self._proxy.again.done

    def ends(self, name: str) -> bool:
        """See there."""
        return ends(name)

    @property
    def seen(self) -> Sequence[str]:
        with self._proxy.lock:
            return list(self._proxy.order)

    @property
    def fired(self) -> bool:
        return self._proxy.plan is not None and bool(self._proxy.plan.met)

    def losses(self, name: str) -> Sequence[Loss]:
        """A request that changes nothing is heard of or not: it has one way to be lost."""
        return (Loss.REQUEST,) if name in _READS else tuple(Loss)

    def release(self) -> None:
        self._proxy.deliver()


_READS = ("GetObject", "HeadObject", "ListObjectsV2", "ListMultipartUploads", "ListParts")
_FAULTS = {
    Loss.REQUEST: Fault.DROPPED,
    Loss.REPLY: Fault.UNANSWERED,
    Loss.DELAY: Fault.DELAYED,
    Loss.DOUBLE: Fault.DOUBLED,
}


def _body(rfile: BufferedIOBase, headers: dict[str, str]) -> bytes:
    """What follows the headers; a body in chunks, as Arrow's client sends it, gets a length."""
    named = {name.lower(): name for name in headers}
    if (chunked := named.get("transfer-encoding")) is None:
        return rfile.read(int(headers.get(named.get("content-length", ""), 0)))
    del headers[chunked]
    body = b""
    while size := int(rfile.readline().split(b";")[0], 16):
        body += rfile.read(size)
        rfile.readline()
    while rfile.readline().strip():
        pass  # trailers
    headers["Content-Length"] = str(len(body))
    return body


@contextmanager
def running(endpoint: str, kind: type[Request] = Request) -> Iterator[Proxy]:
    """A proxy before the server at this endpoint, on a port of its own.

    Args:
        kind: how requests are named, where the server is not one of S3.
    """
    proxy = Proxy("", endpoint.removeprefix("http://"))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            headers = dict(self.headers.items())
            body = _body(self.rfile, headers)
            request = kind(self.command, self.path, headers, body)
            answer = _meet(proxy, request)
            if answer is None:
                self.close_connection = True
                return
            with suppress(OSError):
                self._answer(answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do  # noqa: N815

        def _answer(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            for name, text in answer.headers:
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, text)
            if not any(name.lower() == "content-length" for name, _ in answer.headers):
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        yield proxy


def _meet(proxy: Proxy, request: Request) -> Answer | None:
    """What the client hears; None: the connection breaks."""
    plan = proxy.next(request)
    if proxy.denied(request):
        return Answer(403, [("Content-Type", "application/xml")], proxy.denial)
    if plan is None:
        return proxy.forward(request)
    match plan.fault:
        case Fault.DROPPED:
            return None
        case Fault.UNANSWERED:
            proxy.forward(request)
            return None
        case Fault.DELAYED:
            proxy.delayed.append(request)
            return None
        case Fault.DOUBLED:
            proxy.forward(request)
            return proxy.forward(request)
        case Fault.LIED_AFTER:
            proxy.forward(request)
    return Answer(
        plan.answer[0], [("Content-Type", "application/xml"), ("ETag", '"00"')], plan.answer[1]
    )


def by_proxy(proxy: Proxy, options: S3Options, *, timeout: float = 60.0) -> S3Options:
    """The options of a sink that reaches its server by the proxy."""
    server = replace(options.server, endpoint=proxy.endpoint, timeout=timeout)
    return replace(options, server=server)
