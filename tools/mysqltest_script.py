"""Reading and running the scripts of the servers' regression suites (`*.test`).

Understands what leads from one statement to the next: delimiters, variables, loops,
conditions, sourced files, several connections. What only judges or shows results
(`--error`, `--replace_…`) is passed over, as is what would touch the machine
(`exec`, `perl`, files) or the server's process. A plain SQL script is one, too. Leaves
out the server itself (`ddl_recorder`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DEPTH_MAX = 8  # of sourced files
ROUNDS_MAX = 400  # of one loop

# Commands that the server does not see, besides those that `Runner` has methods for.
_PASSED_OVER: Final = """
    append_file assert cat_file change_user character_set chmod copy_file copy_files
    copy_files_wildcard die diff_files disable_abort_on_error disable_async_client
    disable_cont_connect disable_connect_log disable_cursor_protocol disable_info
    disable_metadata disable_non_blocking_api disable_parsing disable_prepare_warnings
    disable_ps2_protocol disable_ps_protocol disable_query_log disable_reconnect
    disable_result_log disable_rpl_parse disable_service_connection
    disable_session_track_info disable_testcase disable_view_protocol disable_warnings
    echo enable_abort_on_error enable_async_client enable_cursor_protocol
    enable_connect_log enable_info enable_metadata enable_non_blocking_api
    enable_parsing enable_prepare_warnings enable_ps2_protocol enable_ps_protocol
    enable_query_log enable_reconnect enable_result_log enable_rpl_parse
    enable_service_connection enable_session_track_info enable_testcase
    enable_view_protocol enable_warnings end_timer error exec exec_in_background execw
    expr file_exists force-cpdir force-rmdir horizontal_results
    list_files list_files_append_file list_files_write_file lowercase_result mkdir
    move_file optimizer_trace output partially_sorted_result ping query_attrs_add
    query_attrs_delete query_attrs_reset real_sleep reap remove_file remove_files
    remove_files_wildcard replace_column replace_numeric_round replace_regex
    replace_result require reset_connection result result_format rmdir save_master_pos
    send_quit send_shutdown shutdown_server skip_if_hypergraph sleep sorted_result
    start_timer sync_slave_with_master sync_with_master system vertical_results
    wait_for_slave_to_stop
"""
PASSED_OVER: Final = frozenset(_PASSED_OVER.split())
WITH_TEXT: Final = frozenset({"append_file", "perl", "write_file"})
EXPANDING: Final = frozenset({"eval", "evalp", "send_eval"})
SENDING: Final = EXPANDING | {"", "query", "query_horizontal", "query_vertical", "send"}
OTHERS: Final = frozenset(
    {"connect", "connection", "dec", "delimiter", "dirty_close", "disconnect", "end",
     "exit", "if", "inc", "let", "skip", "source", "while"}
)  # fmt: skip
COMMANDS: Final = (PASSED_OVER | WITH_TEXT | SENDING | OTHERS) - {""}

# Files that prepare or watch what is not there: other servers, builds, waiting.
NOT_SOURCED: Final = re.compile(
    r"(^|/)(have_|not_|no_|big_test|count_sessions|wait_|restart_|start_|stop_|kill_|"
    r"shutdown|master-slave|rpl_|sync_|force_restart|load_sysvars|save_|check_|diff_|"
    r"search_pattern|show_|install_|uninstall_|galera|wsrep|assert|expect_crash|"
    r"only_|valid_suite|is_embedded|default_charset|linux|windows|maybe_|require_)"
)
_WORD: Final = re.compile(r"\s*([\w-]+)")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_COMPARISON: Final = re.compile(r"(.*?)\s*(==|!=|<=|>=|<|>)\s*(.*)", re.DOTALL)
_VALUE_OF: Final = re.compile(
    r"query_get_value\s*\((.*),\s*([^,]+?)\s*,\s*([^,]+?)\s*\)\s*$", re.DOTALL
)


class Server(Protocol):
    """What a script talks to. Texts hold one byte per character (latin-1)."""

    def connect(self, name: str, schema: str) -> None:
        """Open a connection of that name, and make it the current one."""

    def use(self, name: str) -> None:
        """Make a connection the current one, opening it when there is none."""

    def disconnect(self, name: str) -> None:
        """Close a connection; the default one becomes the current one."""

    def run(self, statement: str) -> None:
        """Run a statement, whatever comes of it."""

    def value(self, query: str, column: str = "", row: int = 1) -> str:
        """Return a value of a query's result; empty when there is none."""


@dataclass(slots=True)
class Command:
    """A statement (empty name) or a command of the script, with the block after it."""

    name: str
    text: str
    block: list[Command] = field(default_factory=list)


class Parser:
    """Cuts a script into commands; a delimiter counts from where it is set."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._delimiter = ";"

    def commands(self, *, inside: bool = False) -> list[Command]:
        """Return the commands up to the end of the script, or of this block."""
        found: list[Command] = []
        while self._skip_blank():
            if self._text[self._at] == "}":
                self._at += 1
                if inside:
                    return found
                continue
            command = self._line() if self._starts_line() else self._statement()
            if command is not None:
                found.append(command)
        return found

    def _skip_blank(self) -> bool:
        """Go to where a command begins; returns whether there is one."""
        text = self._text
        while self._at < len(text):
            if text[self._at].isspace():
                self._at += 1
            elif text.startswith(self._delimiter, self._at):
                self._at += len(self._delimiter)
            elif text[self._at] == "{":
                self._at += 1
            else:
                return True
        return False

    def _starts_line(self) -> bool:
        return self._text.startswith(("#", "--"), self._at)

    def _line(self) -> Command | None:
        """Read a line that is a comment or a command."""
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line = self._text[self._at : end]
        self._at = end
        word = _WORD.match(line[2:]) if line.startswith("--") else None
        name = word[1].lower() if word else ""
        if word is None or name not in COMMANDS:
            return None
        text = line[2 + word.end() :].strip()
        if name in {"while", "if"}:
            return self._with_block(name, text)
        return self._command(name, text)

    def _statement(self) -> Command | None:
        """Read what ends with the delimiter, or the head of a block."""
        head = re.compile(r"(while|if)\s*(?=\()", re.IGNORECASE).match(
            self._text, self._at
        )
        if head:
            self._at = head.end()
            return self._with_block(head[1].lower(), self._condition())
        text = self._to_delimiter()
        word = _WORD.match(text)
        name = word[1].lower() if word else ""
        if word is None or name not in COMMANDS:
            return Command("", text) if text.strip() else None
        return self._command(name, text[word.end() :].strip())

    def _command(self, name: str, text: str) -> Command | None:
        if name == "delimiter":
            self._delimiter = text.removesuffix(self._delimiter) or text or ";"
            return None
        if name in WITH_TEXT:
            *_, mark = ("EOF", *text.split())
            self._skip_text(mark)
            return None
        return None if name in PASSED_OVER else Command(name, text)

    def _with_block(self, name: str, condition: str) -> Command:
        opening = self._text.find("{", self._at)
        self._at = len(self._text) if opening < 0 else opening + 1
        return Command(name, condition, self.commands(inside=True))

    def _condition(self) -> str:
        """Read up to the parenthesis that closes the one here."""
        depth, begin = 0, self._at
        for end in range(begin, len(self._text)):
            depth += {"(": 1, ")": -1}.get(self._text[end], 0)
            if depth == 0:
                self._at = end + 1
                return self._text[begin : self._at]
        self._at = len(self._text)
        return self._text[begin:]

    def _to_delimiter(self) -> str:
        """Read up to the delimiter outside of quotes."""
        text, begin, quote = self._text, self._at, ""
        while self._at < len(text):
            here = text[self._at]
            if quote:
                if here == "\\" and quote != "`":
                    self._at += 1
                elif here == quote:
                    quote = ""
            elif text.startswith(self._delimiter, self._at):
                found = text[begin : self._at]
                self._at += len(self._delimiter)
                return found
            elif here in "'\"`":
                quote = here
            self._at += 1
        return text[begin:]

    def _skip_text(self, mark: str) -> None:
        """Skip the text that a command takes from the lines after it."""
        mark = mark if mark.isupper() or mark.startswith("END") else "EOF"
        found = re.compile(rf"^{re.escape(mark)}\b.*$", re.MULTILINE).search(
            self._text, self._at
        )
        self._at = found.end() if found else len(self._text)


class Ended(Exception):  # noqa: N818  # not an error
    """The script says that it ends here."""


class Runner:
    """Runs one script; files that it sources are looked for below `roots`."""

    def __init__(self, server: Server, roots: Sequence[Path]) -> None:
        self._server = server
        self._roots = roots
        self.variables: dict[str, str] = {}

    def run(self, script: Path) -> None:
        """Run a script to its end. Raises OSError, and what the server raises."""
        self._folder = script.parent
        try:
            self._run(Parser(script.read_bytes().decode("latin-1")).commands(), 0)
        except Ended:
            return

    def _run(self, commands: Sequence[Command], depth: int) -> None:
        for command in commands:
            if command.name in SENDING:
                with_variables = command.name in EXPANDING
                text = self._expand(command.text) if with_variables else command.text
                if text:
                    self._server.run(text)
            elif command.name == "while":
                for _ in range(ROUNDS_MAX):
                    if not self._holds(command.text):
                        break
                    self._run(command.block, depth)
            elif command.name == "if":
                if self._holds(command.text):
                    self._run(command.block, depth)
            else:
                self._do(command, depth)

    def _do(self, command: Command, depth: int) -> None:
        text = self._expand(command.text)
        if command.name == "let":
            self._let(command.text)
        elif command.name in {"inc", "dec"}:
            name = command.text.strip().lstrip("$")
            step = 1 if command.name == "inc" else -1
            self.variables[name] = str(_number(self.variables.get(name, "")) + step)
        elif command.name == "source":
            self._source(text.strip().rstrip(";"), depth)
        elif command.name == "connect":
            parts = [part.strip() for part in text.strip("() \n").split(",")]
            schema = parts[4].strip("*`'\"") if len(parts) > 4 else ""
            self._server.connect(parts[0], schema if schema != "NO-ONE" else "")
        elif command.name == "connection":
            self._server.use(text.strip())
        elif command.name in {"disconnect", "dirty_close"}:
            self._server.disconnect(text.strip())
        elif command.name in {"exit", "skip", "end"}:
            raise Ended

    def _source(self, name: str, depth: int) -> None:
        if depth >= DEPTH_MAX or NOT_SOURCED.search(name):
            return
        for root in (self._folder, *self._roots):
            path = root / name
            if path.is_file():
                text = path.read_bytes().decode("latin-1")
                self._run(Parser(text).commands(), depth + 1)
                return

    def _let(self, text: str) -> None:
        name, _, value = text.partition("=")
        value = value.strip()
        asked = _VALUE_OF.match(value)
        if asked:
            query = self._expand(asked[1]).strip()
            if query[:1] in {"'", '"'}:
                query = query[1:-1]
            row = _number(self._expand(asked[3]))
            value = self._server.value(query, asked[2].strip("\"'`"), row)
        else:
            value = self._worth(value)
        self.variables[name.strip().lstrip("$")] = value

    def _worth(self, text: str) -> str:
        """Return the value of an expression: a query in backquotes, or a text."""
        text = self._expand(text.strip())
        if len(text) > 1 and text[0] == "`" == text[-1]:
            return self._server.value(text[1:-1])
        if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
            return text[1:-1]
        return text

    def _holds(self, condition: str) -> bool:
        """Return whether a condition of `while` or `if` is true."""
        text = condition.strip().removesuffix("{").strip()
        text = text.removeprefix("(").removesuffix(")").strip()
        negated = text.startswith("!") and not text.startswith("!=")
        text = text.removeprefix("!") if negated else text
        compared = None if text.strip().startswith("`") else _COMPARISON.match(text)
        if compared is None:
            worth = self._worth(text).strip()
            return (worth not in {"", "0"}) != negated
        left, right = self._worth(compared[1]), self._worth(compared[3])
        if compared[2] in {"==", "!="}:
            equal = left == right or (_is_number(left, right)
                                      and _number(left) == _number(right))  # fmt: skip
            return equal == (compared[2] == "==")
        a, b = _number(left), _number(right)
        return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[compared[2]]

    def _expand(self, text: str) -> str:
        """Put the values of variables in; a longer name wins over a shorter one."""

        def worth(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            for end in range(len(name), 0, -1):
                if name[:end] in self.variables:
                    return self.variables[name[:end]] + name[end:]
            return ""

        return _VARIABLE.sub(worth, text)


def _is_number(*texts: str) -> bool:
    return all(re.fullmatch(r"\s*-?\d+\s*", text) for text in texts)


def _number(text: str) -> int:
    found = re.match(r"\s*-?\d+", text)
    return int(found[0]) if found else 0


def scripts_below(paths: Sequence[Path]) -> Iterator[Path]:
    """Give the scripts that are named, and all below the folders that are named."""
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.test"))
        else:
            yield path
