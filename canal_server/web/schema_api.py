"""The part of the REST interface about tables: what `canal-server schema` does.

Whatever is read here may take long: a history is replayed, or is in a database, and the
source may not answer. It happens in threads of its own, within a limit of time.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.routing import Route

from canal_server.model.moments import moment_ms
from canal_server.tablemeta.history.history_moments import parse_moment
from canal_server.users.rights import Right
from canal_server.web.request_bodies import VerifyRequest, body_of
from canal_server.web.slow_operations import SlowOperations
from canal_server.web.visitor_requests import check_parameters, checked, invalid, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from canal_server.model.positions import EntryPosition
    from canal_server.users.audit_log import AuditLog
    from canal_server.web.server_operations import Operations, Schemas

TABLES_MAX: Final = 1000  # of one answer
HISTORIES_AT_ONCE: Final = 4
HISTORY_S: Final = 30.0
VERIFIED_AT_ONCE: Final = 2
VERIFY_S: Final = 60.0
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_AS_IT_IS: Final = {"X-Content-Type-Options": "nosniff"}
_FILE: Final = 'attachment; filename="tables.json"'
_FLAGS: Final = {"true": True, "false": False}


class SchemaApi:
    """The endpoints; `routes` are for those of a destination."""

    def __init__(self, operations: Operations, audit: AuditLog) -> None:
        self._audit = audit
        self._operations = operations
        self._histories = SlowOperations(
            "history",
            "reading the table history",
            at_once=HISTORIES_AT_ONCE,
            limit_s=HISTORY_S,
        )
        self._verifications = SlowOperations(
            "verify",
            "the comparison with the source",
            at_once=VERIFIED_AT_ONCE,
            limit_s=VERIFY_S,
        )

    def routes(self, one: str) -> list[Route]:
        """Return the routes; `one` is the path of a destination."""
        return [
            Route(f"{one}/tables", self._tables),
            Route(f"{one}/tables/{{table}}", self._table),
            Route(f"{one}/tables/{{table}}/history", self._history),
            Route(f"{one}/schema", self._show),
            Route(f"{one}/schema/export", self._export),
            Route(f"{one}/schema/verify", self._verify, methods=["POST"]),
        ]

    @property
    def _schemas(self) -> Schemas:
        return self._operations.schemas

    async def _tables(self, request: Request) -> Response:
        name = checked(request, Right.OBSERVE)
        check_parameters(request, ())
        return await self._answer(lambda: {"tables": list(self._schemas.tables(name))})

    async def _table(self, request: Request) -> Response:
        name, table = checked(request, Right.OBSERVE), request.path_params["table"]
        check_parameters(request, ("at", "source"))
        show = partial(
            self._schemas.table, name, table, at=_at(request), source=_source(request)
        )
        return await self._answer(show)

    async def _history(self, request: Request) -> Response:
        name, table = checked(request, Right.OBSERVE), request.path_params["table"]
        check_parameters(request, ("since", "source"))
        source, since_ms = _source(request), _since_ms(request)

        def read() -> dict[str, Any]:
            found = self._schemas.table_changes(
                name, table, source=source, since_ms=since_ms
            )
            return {"table": table, "changes": list(found)}

        return await self._answer(read)

    async def _show(self, request: Request) -> Response:
        """Answer with the tables at a moment, some at a time, or all as statements."""
        name = checked(request, Right.OBSERVE)
        known = ("at", "source", "table", "all", "format", "offset", "limit")
        check_parameters(request, known)
        asked = request.query_params
        form = asked.get("format", "json")
        if form not in ("json", "sql"):
            raise invalid("format: expected json or sql")
        of_tables: dict[str, Any] = {
            "at": _at(request),
            "source": _source(request),
            "tables": asked.getlist("table"),
            "all_": _flag(request, "all"),
        }
        if form == "sql":
            show_sql = partial(self._schemas.show_sql, name, **of_tables)
            text = await self._histories.run(lambda _: show_sql().encode())
            return Response(text, media_type=_TEXT, headers=_AS_IT_IS)
        return await self._answer(
            partial(
                self._schemas.show,
                name,
                **of_tables,
                offset=_number(request, "offset", 0, 2**31),
                limit=_number(request, "limit", TABLES_MAX, TABLES_MAX, least=1),
            )
        )

    async def _export(self, request: Request) -> Response:
        """Answer with a file for `canal-server schema import`."""
        name = checked(request, Right.OBSERVE)
        check_parameters(request, ("at", "source"))
        export = partial(
            self._schemas.export, name, at=_at(request), source=_source(request)
        )
        text = await self._histories.run(lambda _: export().encode())
        note(self._audit, request, "schema_export", destination=name)
        headers = {**_AS_IT_IS, "Content-Disposition": _FILE}
        return Response(text, media_type=_JSON, headers=headers)

    async def _verify(self, request: Request) -> Response:
        """Compare a history with the source, which costs it a connection."""
        name = checked(request, Right.OPERATE)
        check_parameters(request, ())
        asked = VerifyRequest.parse(await body_of(request))
        note(self._audit, request, "schema_verify", destination=name)
        found = await self._verifications.run(
            lambda stop: _json_of(
                self._schemas.verify(
                    name, tables=asked.tables, source=asked.source, stop=stop
                )
            )
        )
        return Response(found, media_type=_JSON)

    async def _answer(self, read: Callable[[], object]) -> Response:
        """Answer with JSON that is read, and rendered, in another thread."""
        found = await self._histories.run(lambda _: _json_of(read()))
        return Response(found, media_type=_JSON)


def _json_of(found: object) -> bytes:
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _at(request: Request) -> EntryPosition | int | None:
    """Return the position or time that is asked for. Raises Problem."""
    text = request.query_params.get("at")
    if text is None:
        return None
    try:
        return parse_moment(text, needs_zone=True)
    except ValueError as error:
        raise invalid(f"at: {error}") from None  # the cause adds nothing


def _since_ms(request: Request) -> int | None:
    text = request.query_params.get("since")
    if text is None:
        return None
    try:
        return moment_ms(text, needs_zone=True)
    except ValueError as error:
        raise invalid(f"since: {error}") from None  # the cause adds nothing


def _source(request: Request) -> str | None:
    return request.query_params.get("source")


def _flag(request: Request, name: str) -> bool:
    found = _FLAGS.get(request.query_params.get(name, "false"))
    if found is None:
        raise invalid(f"{name}: expected true or false")
    return found


def _number(
    request: Request, name: str, default: int, most: int, *, least: int = 0
) -> int:
    text = request.query_params.get(name, str(default))
    # More digits than `most` has are too much for `int`, too.
    if text.isascii() and text.isdecimal() and len(text) <= len(str(most)):
        number = int(text)
        if least <= number <= most:
            return number
    raise invalid(f"{name}: expected a number from {least} to {most}")
