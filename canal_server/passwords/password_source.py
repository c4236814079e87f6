"""Where a password comes from, and reading it each time that it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  # types of fields are read by tests
from typing import TYPE_CHECKING

from canal_server.errors import PasswordError
from canal_server.passwords.druid_password import decrypted
from canal_server.passwords.password_command import output_of, program_of
from canal_server.passwords.password_file import content_of

if TYPE_CHECKING:
    from canal_server.runtime.lifecycle import Stop


@dataclass(frozen=True, slots=True)
class PasswordSource:
    """A file, a command or a text, and druid's public key if that is encrypted.

    `key` is the setting that names it, for errors. Exactly one of `file`, `command` and
    `text` is used, in this order.
    """

    key: str
    file: Path | None = None
    command: str = field(default="", repr=False)  # its arguments may be secrets
    text: str = field(default="", repr=False)
    public_key: str | None = None  # base64 of a DER key; None: not encrypted

    def read(self, stop: Stop | None = None) -> str:
        """Return the password as it is now; blocks while a command runs.

        `stop` ends the wait for a command. Raises PasswordError.
        """
        if self.file is not None:
            shown = str(self.file)
            text = self._text_of(content_of(self.key, self.file), shown)
        elif self.command:
            shown = program_of(self.command)
            text = self._text_of(output_of(self.key, self.command, stop), shown)
        else:
            shown, text = "(hidden)", self.text
        if self.public_key is None:
            return text
        try:
            return decrypted(self.public_key, text)
        except ValueError as error:
            raise PasswordError(self.key, shown, str(error)) from None

    def _text_of(self, data: bytes, shown: str) -> str:
        """Return the text of a file or a command, without the newline at its end."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            # Not chained: the error of the decoder contains the bytes.
            raise PasswordError(
                self.key, shown, "not valid UTF-8; write the password as UTF-8 text"
            ) from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            raise PasswordError(
                self.key, shown, "empty; write the password, and nothing else"
            )
        if "\n" in text or "\0" in text:
            raise PasswordError(
                self.key,
                shown,
                "more than one line, or a NUL character; write the password, and"
                " nothing else",
            )
        return text


Password = str | PasswordSource


def revealed(password: Password, stop: Stop | None = None) -> str:
    """Return a password as text. Raises PasswordError."""
    return password if isinstance(password, str) else password.read(stop)
