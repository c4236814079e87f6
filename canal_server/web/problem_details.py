"""Errors of the REST interface as problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse

from canal_server.errors import CanalError, ConfigError, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):  # noqa: N818  # the term of the RFC
    """A request that is refused; `detail` says what to do instead."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        # JSON may have half a surrogate pair, which has no UTF-8.
        self.detail = detail.encode(errors="backslashreplace").decode()
        self.headers = headers
        self.more = more

    def response(self) -> JSONResponse:
        """Return the answer."""
        content = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            **self.more,
        }
        return JSONResponse(
            content, self.status.value, headers=self.headers, media_type=_MEDIA_TYPE
        )


def problem_of(error: CanalError) -> Problem:
    """Return the problem for an error of the server: input, name, or state."""
    if isinstance(error, ConfigError):
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    elif isinstance(error, NotFound):
        status = HTTPStatus.NOT_FOUND
    else:
        status = HTTPStatus.CONFLICT
    return Problem(status, str(error))
