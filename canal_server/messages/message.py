"""One message of the log at WARNING or ERROR, with what an operator reads about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

NAME_ATTRIBUTE: Final = "message_name"  # of a log record
_CALLER: Final = 2  # the frame that a record names: who calls `log`


@dataclass(frozen=True, slots=True)
class Message:
    """A message that the program logs.

    `name` is unique, and its anchor in the reference. `text` is a format of `logging`.
    `meaning` and `remedy` are Markdown; an empty remedy: nothing is to be done.
    """

    name: str
    level: int
    text: str
    meaning: str
    remedy: str = ""

    def log(
        self,
        logger: logging.Logger,
        *args: object,
        exc_info: BaseException | bool | None = False,
        level: int | None = None,
    ) -> None:
        """Log it as the caller's, with its name in the record.

        `level` is for a caller for whom it is less than a warning.
        """
        logger.log(
            self.level if level is None else level,
            self.text,
            *args,
            exc_info=exc_info,
            extra={NAME_ATTRIBUTE: self.name},
            stacklevel=_CALLER,
        )
