"""Where alarms go: the log, a web service, a command."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from canal_server.doors.web_service import FAILURES, WebTarget, reason_of_failure
from canal_server.errors import CanalError
from canal_server.messages import daemon_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0  # for a web service or a command
_SUCCESS: Final = range(200, 300)
_OUTPUT_MAX: Final = 200  # characters of a command's last line


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm: raised, or resolved. An event is raised and never resolved."""

    state: str  # "raised" or "resolved"
    destination: str
    kind: str
    text: str
    about: str
    time_ms: int  # since 1970
    server: str  # this host's name


class AlarmHook(Protocol):
    """Takes alarms."""

    name: str  # by which it is found again what it has not accepted

    def send(self, alarm: Alarm) -> None:
        """Pass an alarm on. Raises CanalError; it is then sent again later."""


class LogHook:
    """Writes alarms to the log."""

    name = "log"

    def send(self, alarm: Alarm) -> None:
        """Write it."""
        if alarm.state == "raised":
            daemon_messages.ALARM_RAISED.log(
                log, alarm.destination, alarm.kind, alarm.text
            )
        else:
            log.info(
                "alarm resolved: destination %s: %s: %s",
                alarm.destination,
                alarm.kind,
                alarm.text,
            )


class WebhookHook:
    """Sends each alarm to a web service by POST, as a JSON object.

    An answer 2xx is a success. Redirects are not followed.
    """

    name = "webhook"

    def __init__(self, url: str) -> None:
        """Raise ValueError for an unusable URL."""
        self._target = WebTarget(url)

    def send(self, alarm: Alarm) -> None:
        """Send it."""
        target, body = self._target, json.dumps(asdict(alarm)).encode()
        try:
            with closing(target.connect(TIMEOUT_S)) as connection:
                connection.request("POST", target.path, body, target.headers)
                with connection.getresponse() as response:
                    status, reason = response.status, response.reason
        except FAILURES as error:
            raise CanalError(f"{target}: {reason_of_failure(error)}") from error
        if status not in _SUCCESS:
            raise CanalError(f"{target} answered {status} {reason}")


class CommandHook:
    """Runs a command for each alarm, with the JSON object on its standard input.

    The fields are also variables: CANAL_ALARM_STATE, CANAL_ALARM_DESTINATION and so on.
    """

    name = "command"

    def __init__(self, command: str) -> None:
        self._command: Sequence[str] = shlex.split(command)

    def send(self, alarm: Alarm) -> None:
        """Run it."""
        fields = asdict(alarm)
        variables = {f"CANAL_ALARM_{k.upper()}": str(v) for k, v in fields.items()}
        try:
            done = subprocess.run(  # noqa: S603  # the operator's own
                self._command,
                input=json.dumps(fields),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | variables,
                timeout=TIMEOUT_S,
                text=True,
                errors="backslashreplace",
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            reason = f"did not end within {TIMEOUT_S:g} s"
            raise CanalError(f"canal.alarm.command: {reason}") from error
        except OSError as error:
            raise CanalError(f"canal.alarm.command: {error.strerror}") from error
        if done.returncode:
            said = (done.stdout.strip().splitlines() or [""])[-1][:_OUTPUT_MAX]
            raise CanalError(
                f"canal.alarm.command: exit status {done.returncode}: {said}"
            )
