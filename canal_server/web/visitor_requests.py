"""What endpoints read of a request: who sent it, for which destination, parameters."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from canal_server.web.problem_details import Problem

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import Request

    from canal_server.users.audit_log import AuditLog
    from canal_server.users.rights import Right
    from canal_server.web.access_rules import Visitor


def visitor_of(request: Request) -> Visitor:
    """Return who sent a request."""
    visitor: Visitor = request.state.visitor
    return visitor


def checked(request: Request, right: Right) -> str:
    """Return the destination of a request. Raises Problem without the right for it."""
    name: str = request.path_params["destination"]
    visitor_of(request).check(right, name)
    return name


def check_parameters(request: Request, known: Collection[str]) -> None:
    """Raise a Problem for parameters that an endpoint does not know."""
    unknown = request.query_params.keys() - set(known)
    if unknown:
        raise invalid(f"unknown parameters: {', '.join(sorted(unknown))[:200]}")


def invalid(detail: str) -> Problem:
    """Return the problem of a request that cannot be understood."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def note(audit: AuditLog, request: Request, event: str, **more: Any) -> None:
    """Note in the audit what somebody has done."""
    client = request.client
    address = "?" if client is None else f"{client.host}:{client.port}"
    audit.note(event, visitor_of(request).user.name or None, address, **more)
