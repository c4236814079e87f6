"""The REST interface: what `status`, `position` and `subscriptions` do, over HTTP.

Leaves out what is about tables (`schema_api`).
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from canal_server.errors import CanalError
from canal_server.messages import daemon_messages
from canal_server.observe.readings import READY_STATES
from canal_server.users.rights import Right
from canal_server.users.shown_rows import redaction_of
from canal_server.web.access_rules import check_site
from canal_server.web.description.openapi import document
from canal_server.web.destination_view import view_of
from canal_server.web.live_tail import MEDIA_TYPE, TailResponse
from canal_server.web.problem_details import Problem, problem_of
from canal_server.web.request_bodies import LevelRequest, SeekRequest, body_of
from canal_server.web.schema_api import SchemaApi
from canal_server.web.slow_operations import SlowOperations
from canal_server.web.tail_sums import TailSums
from canal_server.web.visitor_requests import (
    check_parameters,
    checked,
    note,
    visitor_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from canal_server.cursor_moves.move_plan import MovePlan
    from canal_server.observe.readings import Reading
    from canal_server.runtime.lifecycle import Stop
    from canal_server.users.audit_log import AuditLog
    from canal_server.web.access_rules import AccessRules, Visitor
    from canal_server.web.live_tail import Tails
    from canal_server.web.server_operations import Operations
    from canal_server.web.throughput import Throughput

log = logging.getLogger(__name__)

T = TypeVar("T")
BASE: Final = "/api/v1"
# What a status shows to those who may not observe all destinations.
_OF_ANY: Final = ("version", "uptime_s", "stopping", "instances")
STORED_AT_ONCE: Final = 4
STORED_S: Final = 30.0
SEEKS_AT_ONCE: Final = 2
SEEK_S: Final = 60.0
_ACCEPTED: Final = HTTPStatus.ACCEPTED.value


class Api:
    """The endpoints; `routes` are what an application mounts."""

    def __init__(
        self,
        operations: Operations,
        throughput: Throughput,
        version: str,
        *,
        rules: AccessRules,
        tails: Tails,
        audit: AuditLog,
    ) -> None:
        self._audit = audit
        self._operations = operations
        self._throughput = throughput
        self._version = version
        self._host = socket.gethostname()
        self._rules = rules
        self._tails = tails
        self._schemas = SchemaApi(operations, audit)
        self._stored = SlowOperations(
            "stored", "reading what is stored", at_once=STORED_AT_ONCE, limit_s=STORED_S
        )
        # ZooKeeper may be slow, which is no reason to delay what is stored elsewhere.
        self._cluster_reads = SlowOperations(
            "clusters", "reading clusters", at_once=STORED_AT_ONCE, limit_s=STORED_S
        )
        # A source may be slow, and a search for a time may read much.
        self._seeks = SlowOperations(
            "seek", "moving clients", at_once=SEEKS_AT_ONCE, limit_s=SEEK_S
        )
        self._document = document(version)

    def routes(self) -> list[Route | Mount]:
        """Return the routes."""
        one = "/destinations/{destination}"
        return [
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Mount(
                BASE,
                routes=[
                    Route("/openapi.json", self._openapi),
                    Route("/status", self._status),
                    Route("/log-levels", self._levels),
                    Route("/log-levels", self._set_level, methods=["PUT"]),
                    Route("/clusters", self._clusters),
                    Route("/destinations", self._list),
                    Route(one, self._detail),
                    Route(f"{one}/throughput", self._rates),
                    Route(f"{one}/positions", self._positions),
                    Route(f"{one}/subscriptions", self._subscriptions),
                    Route(
                        f"{one}/subscriptions/{{name}}",
                        self._remove_subscription,
                        methods=["DELETE"],
                    ),
                    Route(f"{one}/tail", self._tail),
                    *self._schemas.routes(one),
                    Route(f"{one}/seek", self._seek, methods=["POST"]),
                    Route(f"{one}/start", self._start, methods=["POST"]),
                    Route(f"{one}/stop", self._stop, methods=["POST"]),
                    Route(
                        f"{one}/clients/{{client_id:int}}",
                        self._unsubscribe,
                        methods=["DELETE"],
                    ),
                ],
            ),
        ]

    # --- health -----------------------------------------------------------------------

    async def _alive(self, _: Request) -> Response:
        """Answer as long as the process can."""
        return JSONResponse({"status": "alive"})

    async def _ready(self, _: Request) -> Response:
        """Answer 200 if every destination that should run here runs."""
        readings = await run_in_threadpool(self._operations.readings)
        states = {each.destination: each.state for each in readings}
        is_ready = all(state in READY_STATES for state in states.values())
        content: dict[str, Any] = {"status": "ready" if is_ready else "not ready"}
        if not self._rules.users.has_file:  # names are for those who may observe them
            content["destinations"] = states
            content["delivery"] = {
                each.destination: each.status["delivery"]["state"]
                for each in readings
                if each.status.get("delivery")
            }
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse(content, status)

    # --- reading ----------------------------------------------------------------------

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(self._document)

    async def _status(self, request: Request) -> Response:
        visitor = visitor_of(request)
        found = dict(await self._do(self._operations.status))
        if not visitor.user.may_everywhere(Right.OBSERVE):
            # Not what is of the host, nor texts about files of any destination.
            found = {key: found[key] for key in _OF_ANY if key in found}
            found["instances"] = [
                each
                for each in found["instances"]
                if visitor.may(Right.OBSERVE, str(each["destination"]))
            ]
            found["refused"], found["changed_settings"] = {}, []
        return JSONResponse(found)

    async def _clusters(self, request: Request) -> Response:
        """Answer with those that have a destination that the visitor may observe."""
        visitor = visitor_of(request)
        found = await self._cluster_reads.run(lambda _: self._operations.clusters())
        shown = []
        for each in found["clusters"]:
            destinations = {
                name: view
                for name, view in each["destinations"].items()
                if visitor.may(Right.OBSERVE, name)
            }
            if destinations:
                shown.append({**each, "destinations": destinations})
        this_server = found["this_server"] if shown else None
        return JSONResponse({"this_server": this_server, "clusters": shown})

    async def _list(self, request: Request) -> Response:
        visitor = visitor_of(request)
        readings = await self._do(self._operations.readings)
        shown = [r for r in readings if visitor.may(Right.OBSERVE, r.destination)]
        found = [_view(visitor, each) for each in shown]
        sees_all = visitor.user.may_everywhere(Right.OBSERVE)
        return JSONResponse(
            {
                "version": self._version,
                "host": self._host if sees_all else None,
                "allows_actions": bool(visitor.user.operate),
                "allows_tails": visitor.why_no_data is None and bool(visitor.user.read),
                "destinations": found,
            }
        )

    async def _detail(self, request: Request) -> Response:
        name = checked(request, Right.OBSERVE)
        found = await self._do(self._operations.reading, name)
        return JSONResponse(_view(visitor_of(request), found))

    async def _rates(self, request: Request) -> Response:
        name = checked(request, Right.OBSERVE)
        await self._do(self._operations.reading, name)  # it is known
        rates = self._throughput.of(name)
        return JSONResponse({"samples": [each._asdict() for each in rates]})

    async def _positions(self, request: Request) -> Response:
        name = checked(request, Right.OBSERVE)
        read = self._operations.positions
        return JSONResponse(dict(await self._stored.run(lambda _: read(name))))

    async def _subscriptions(self, request: Request) -> Response:
        name = checked(request, Right.OBSERVE)
        read = self._operations.subscriptions
        return JSONResponse(dict(await self._stored.run(lambda _: read(name))))

    async def _levels(self, request: Request) -> Response:
        visitor = visitor_of(request)
        found = dict(await self._do(self._operations.log_levels))
        found["destinations"] = {
            name: level
            for name, level in found["destinations"].items()
            if visitor.may(Right.OBSERVE, name)
        }
        return JSONResponse(found)

    async def _tail(self, request: Request) -> Response:
        """Send the changes of some tables as they come."""
        name = checked(request, Right.READ)
        check_site(request.headers)
        check_parameters(request, ("table",))
        if request.method == "HEAD":  # the answer to GET has no end
            return Response(media_type=MEDIA_TYPE)
        visitor = visitor_of(request)
        rule = visitor.user.read_rule(name)
        assert rule is not None, "the right was checked"
        expression = request.query_params.get("table", "") or rule.tables
        tail = await self._tails.open(
            name,
            expression,
            # A login of the settings is of all operators, and has no limit of its own.
            user=visitor.user.name if self._rules.users.has_file else "",
            redaction=redaction_of(rule),
            is_allowed=lambda: self._rules.is_current(visitor),
        )
        tail.sums = TailSums(
            partial(self._note, request, destination=name, filter=expression)
        )
        return TailResponse(tail)

    # --- actions ----------------------------------------------------------------------

    async def _set_level(self, request: Request) -> Response:
        asked = LevelRequest.parse(await body_of(request))
        visitor = visitor_of(request)
        if asked.destination:
            visitor.check(Right.OPERATE, asked.destination)
        else:
            visitor.check_everywhere(Right.OPERATE)
        set_level = self._operations.set_log_level
        await self._do(set_level, asked.level, asked.destination)
        more = {"destination": asked.destination or None, "level": asked.level}
        self._note(request, "log_level", **more)
        return await self._levels(request)

    async def _seek(self, request: Request) -> Response:
        """Move clients to another position, or say what that would do."""
        name = checked(request, Right.OPERATE)
        asked = SeekRequest.parse(await body_of(request))

        def seek(stop: Stop) -> MovePlan:
            plan = self._operations.plan_move(
                name, asked.to, source=asked.source, client_ids=asked.client_ids
            )
            if asked.dry_run:
                return plan
            if stop.requested():
                raise CanalError("nothing was moved: nobody waits for it any more")
            self._operations.move(plan)
            # Also where nobody waits any more.
            clients = sorted(plan.client_ids)
            to = [str(each) for each in plan.positions]
            self._note(request, "seek", destination=name, client_ids=clients, to=to)
            return plan

        plan = await self._seeks.run(seek)
        return JSONResponse(
            {
                **plan.as_json(moved=not asked.dry_run),
                "lines": list(plan.lines()),
                "warnings": list(plan.warnings),
            }
        )

    async def _start(self, request: Request) -> Response:
        name = checked(request, Right.OPERATE)
        await self._do(self._operations.start_destination, name)
        self._note(request, "start", destination=name)
        return JSONResponse({"destination": name}, _ACCEPTED)

    async def _stop(self, request: Request) -> Response:
        name = checked(request, Right.OPERATE)
        await self._do(self._operations.stop_destination, name)
        self._note(request, "stop", destination=name)
        return JSONResponse({"destination": name}, _ACCEPTED)

    async def _unsubscribe(self, request: Request) -> Response:
        name = checked(request, Right.OPERATE)
        client_id = request.path_params["client_id"]
        await self._do(self._operations.unsubscribe, name, client_id)
        self._note(request, "unsubscribe", destination=name, client_id=client_id)
        return Response(status_code=HTTPStatus.NO_CONTENT.value)

    async def _remove_subscription(self, request: Request) -> Response:
        name = checked(request, Right.OPERATE)
        subscription = request.path_params["name"]
        remove = self._operations.remove_subscription
        await self._do(remove, name, subscription)
        more = {"destination": name, "subscription": subscription}
        self._note(request, "range_unsubscribe", **more)
        return Response(status_code=HTTPStatus.NO_CONTENT.value)

    def _note(self, request: Request, event: str, **more: Any) -> None:
        note(self._audit, request, event, **more)

    async def _do(
        self, operation: Callable[..., T], *arguments: Any, **options: Any
    ) -> T:
        """Call an operation in another thread. Raises Problem."""
        try:
            return await run_in_threadpool(operation, *arguments, **options)
        except CanalError as error:
            raise problem_of(error) from error


def _view(visitor: Visitor, reading: Reading) -> dict[str, Any]:
    name = reading.destination
    return {
        **view_of(reading),
        "allows_actions": visitor.may(Right.OPERATE, name),
        "allows_tail": visitor.may(Right.READ, name),
    }


async def on_problem(_: Request, error: Exception) -> Response:
    """Answer a refused request."""
    assert isinstance(error, Problem)
    return error.response()


async def on_http_exception(_: Request, error: Exception) -> Response:
    """Answer a request with an unknown path or a wrong method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return Problem(status, status.description, headers=error.headers).response()


async def on_failure(request: Request, error: Exception) -> Response:
    """Log an internal error, and answer that there was one."""
    daemon_messages.HTTP_REQUEST_FAILED.log(log, request.url.path, exc_info=error)
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the server's log").response()
