"""One handle that the server lets nobody abort stops no sweep, in every protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.model import HandleName
from abs_services import S3Service
from abs_sinks.s3 import S3Sink
from abs_sinks.s3.testing import FolderHarness
from abs_testing import SCHEMA
from abs_testing.case import Case
from abs_testing.checks import CHECKS
from tests import sample
from tests.sinks.s3.proxy import Proxy, Request, by_proxy, running

pytestmark = pytest.mark.services

ABORTS = ("AbortMultipartUpload", "DeleteObject", "DeleteObjects")

(RULE,) = [
    check
    for check in CHECKS
    if check.rule == "a_handle_that_cannot_be_aborted_does_not_stop_the_sweep_of_the_others"
]


class HeldFolder(FolderHarness):
    """Its sinks go through a proxy, which denies them the abort of one handle."""

    def __init__(self, path: str, given: Mapping[str, str], proxy: Proxy) -> None:
        super().__init__(path, given)
        self._proxy = proxy
        self.new_sink = partial(S3Sink, by_proxy(proxy, self.options), SCHEMA)
        self.denials = 0

    @contextmanager
    def held(self, handle: HandleName) -> Iterator[None]:
        """See ``abs_testing.Holding``."""

        def denied(request: Request) -> bool:
            named = request.path.encode() + request.body
            found = request.call in ABORTS and handle.attempt.encode() in named
            self.denials += found
            return found

        self._proxy.denied = denied
        try:
            yield
        finally:
            self._proxy.denied = lambda request: False


@sample.cases(1)
def test_a_handle_that_nobody_may_abort_does_not_stop_the_sweep_of_the_others(
    store: S3Service, given: Mapping[str, str], prefix: str, protocol: str
) -> None:
    with running(store.endpoint) as proxy:
        options = {**given, "protocol": protocol}
        harness = HeldFolder(f"s3://{store.bucket}/{prefix}", options, proxy)
        case = Case(harness)
        try:
            # Under idempotent, too: here its losers' objects are swept, which no other sink has.
            RULE.body(case)
        finally:
            case.close()
            harness.close()
    assert harness.denials, "no abort met the denial"
