"""Creates topics with partitions at the administrative service of Pulsar."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Final

from canal_server.doors.web_service import FAILURES, WebTarget, reason_of_failure
from canal_server.tls.client_context import context_of

if TYPE_CHECKING:
    from canal_server.queues.producers.pulsar_settings import PulsarSettings

logger = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
_CREATED, _EXISTS = (200, 204), (409,)
_SCHEME: Final = "://"
_DEFAULT: Final = "public/default"


def create_topic(settings: PulsarSettings, full: str, partitions: int) -> str:
    """Create a topic unless it exists; returns why that failed, empty: it did not."""
    target = WebTarget(settings.admin_url)
    headers = {"Content-Type": "application/json"}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    trusted = settings.trusted_file
    path = f"{target.path.rstrip('/')}/admin/v2/{_path_of(full)}/partitions"
    try:
        tls = context_of(str(trusted), "", "") if trusted is not None else None
        with closing(target.connect(ANSWER_S, tls)) as connection:
            connection.request("PUT", path, str(partitions), headers)
            with connection.getresponse() as response:
                status, reason = response.status, response.reason
    except FAILURES as error:
        return (
            f"it was not created: {target} does not answer: {reason_of_failure(error)}"
        )
    except ValueError as error:  # of the authorities
        return f"it was not created: {error}"
    if status in _CREATED:
        logger.info(
            "created topic %s with %d partitions at %s", full, partitions, target
        )
    elif status not in _EXISTS:
        return f"it was not created: {target} answers {status} {reason}".rstrip()
    return ""


def _path_of(full: str) -> str:
    """Return where the topic is in the service: kind, tenant, namespace and name."""
    kind, separator, rest = full.partition(_SCHEME)
    if not separator:
        kind, rest = "persistent", full
    if "/" not in rest:
        rest = f"{_DEFAULT}/{rest}"
    return f"{kind}/{rest}"
