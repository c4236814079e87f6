"""All checks of one server of a destination, in the order in which they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from canal_server.errors import ConnectionLost, SourceError
from canal_server.model.check_results import Outcome, fail, ok, skip, warn
from canal_server.mysql.capture_settings import (
    REQUIREMENTS,
    needs_of,
    read_nevertheless,
)
from canal_server.mysql.control_connection import ControlConnection
from canal_server.mysql.standby import Requirements, examine
from canal_server.source.begin.source_servers import STANDBY
from canal_server.source.check.archive_check import archive_results
from canal_server.source.check.position_checks import (
    check_cursors,
    check_expiry,
    check_start,
)
from canal_server.source.check.server_checks import (
    check_clock,
    check_other_replicas,
    check_row_metadata,
    check_row_value_options,
)
from canal_server.source.check.source_facts import read_source_facts
from canal_server.source.check.table_checks import (
    check_filter,
    check_foreign_keys,
    check_select,
    check_unlogged,
)
from canal_server.tls.certificates import check_expiry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canal_server.model.check_results import CheckResult
    from canal_server.mysql.source_settings import Access
    from canal_server.source.check.checked_source import CheckedSource
    from canal_server.source.check.source_facts import SourceFacts

CONNECT_S: Final = 5.0  # an operator waits
ANSWER_S: Final = 10.0  # for each query


# What a destination starts without; what it needs is in `REQUIREMENTS`.
CHECKS: Final[Sequence[Callable[[SourceFacts, CheckedSource], CheckResult]]] = (
    check_row_metadata,
    check_row_value_options,
    check_other_replicas,
    check_clock,
    check_filter,
    check_select,
    check_foreign_keys,
    check_unlogged,
    check_cursors,
    check_expiry,
    check_start,
)


def check_source(access: Access, checked: CheckedSource) -> list[CheckResult]:
    """Connect to a server and check it; raises nothing of the server's."""
    control = ControlConnection(impatient(access))
    try:
        control.open()
    except SourceError as error:
        return _unconnected(access, checked, error)
    with control:
        results = [
            ok("reachable", f"{checked.role} {access.address} is reachable"),
            ok("login", f"account {access.credentials.user} may log in"),
            *_certificates(control, checked),
        ]
        try:
            return results + _connected(control, checked)
        except SourceError as error:
            return [*results, fail("settings", str(error))]


def _certificates(
    control: ControlConnection, checked: CheckedSource
) -> Iterator[CheckResult]:
    """Yield until when the certificates of both sides are valid, if there are any."""
    address, days = control.access.address, checked.expiry_warning_days
    if (ends := control.certificate_expires_at) is not None:
        shown = f"{checked.role} {address}"
        remedy = "replace it there"
        yield check_expiry_of("source_certificate", shown, ends, days, remedy)
    tls = control.access.tls
    if (ends := tls.expires_at()) is not None:
        shown = f"{tls.client_store or tls.cert}, shown to {address}"
        remedy = "replace it; a running server reads it again"
        yield check_expiry_of("client_certificate", shown, ends, days, remedy)


def results_of(facts: SourceFacts, checked: CheckedSource) -> list[CheckResult]:
    """Return what each check finds."""
    needs = needs_of(checked.config.source)
    required = [each.check(facts.capture, needs) for each in REQUIREMENTS]
    results = required + [each(facts, checked) for each in CHECKS]
    return [*results, *archive_results(facts, checked)]


def _connected(control: ControlConnection, checked: CheckedSource) -> list[CheckResult]:
    with_oldest = checked.starts_as_configured and bool(checked.host.timestamp_ms)
    facts = read_source_facts(control, checked.config, with_oldest=with_oldest)
    results = results_of(facts, checked)
    if checked.role == STANDBY:
        allowed = read_nevertheless(facts.capture, needs_of(checked.config.source))
        failed = [
            each.check
            for each in results
            if each.outcome is Outcome.FAIL and each.check not in allowed
        ]
        results.append(_fitness(control, checked, failed))
    return results


def _fitness(
    control: ControlConnection, checked: CheckedSource, failed: Sequence[str]
) -> CheckResult:
    """Check whether a standby could become the source now, if no check failed."""
    name, what = "standby", "whether it could take over"
    if failed:
        return skip(name, what, f"{', '.join(failed)} must be corrected first")
    source = checked.config.source
    try:
        verdict = examine(
            control,
            Requirements(gtid_on=source.gtid_on, lag_max_s=source.standby_lag_max_s),
        )
    except SourceError as error:
        return skip(name, what, str(error))
    if verdict.refusal:
        return fail(name, f"it could not take over: {verdict.refusal}")
    if verdict.warnings:
        return warn(name, f"it could take over, but {'; '.join(verdict.warnings)}")
    return ok(name, "it could take over")


def _unconnected(
    access: Access, checked: CheckedSource, error: SourceError
) -> list[CheckResult]:
    reachable = ok("reachable", f"{checked.role} {access.address} is reachable")
    if isinstance(error, ConnectionLost):
        key, text = f"{checked.key}.address", str(error)
        remedy = "" if key in text else f"check {key} and that the server runs"
        reachable = fail("reachable", text, remedy)
    results = [reachable]
    if reachable.outcome is Outcome.OK:
        results.append(fail("login", str(error)))
    what = "everything else"
    why = f"there is no connection to {access.address}"
    return [*results, skip("settings", what, why)]


def impatient(access: Access) -> Access:
    """Return how to reach a server while an operator waits."""
    return replace(
        access,
        connect_timeout_s=min(access.connect_timeout_s, CONNECT_S),
        io_timeout_s=min(access.io_timeout_s, ANSWER_S),
        link_timeout_s=min(access.link_timeout_s, ANSWER_S),
    )
