"""Reads a YAML document key by key, so that each problem has its line and column.

Leaves out which keys exist. A text is used as written, not as YAML
would interpret it: `0123` stays that. Anchors and aliases work, merge keys do not.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, TypeVar

import yaml

from canal_server.errors import ConfigError
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_Value = TypeVar("_Value")

SIZE_MAX: Final = 1 << 20  # bytes of a document
WHOLE_MAX: Final = 2**62
_NULL: Final = "tag:yaml.org,2002:null"
_TRUTHS: Final = {"true": True, "yes": True, "on": True} | dict.fromkeys(
    ("false", "no", "off"), False
)
_ENVIRONMENT: Final = re.compile(r"\$\{([^${}]*)\}")
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)", re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_WHOLE: Final = re.compile(r"\d[\d_]{0,24}", re.ASCII)
UNREAD: Final = "a secret that was not read"


class Document:
    """One file and its problems."""

    def __init__(
        self,
        name: str,
        text: str,
        environ: Mapping[str, str],
        *,
        has_secrets: bool = True,
    ) -> None:
        """Parse the text. Raises ConfigError if it is not YAML.

        Without secrets, no secret is read, and each one is `UNREAD`.
        """
        self.name = name
        self.environ = environ
        self.has_secrets = has_secrets
        self._found: list[tuple[int, int, str]] = []  # line, column, text
        if len(text.encode(errors="replace")) > SIZE_MAX:
            raise ConfigError([f"{name}: larger than {SIZE_MAX} bytes"])
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            location = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
            what = " ".join(filter(None, (error.context, error.problem)))
            if "expected ',' or '}', but got '{'" in what:
                what += "; put ${NAME} in quotes inside braces"
            raise ConfigError([f"{location}: not valid YAML: {what}"]) from None
        except yaml.YAMLError as error:
            raise ConfigError([f"{name}: not valid YAML: {error}"]) from None
        except RecursionError:
            raise ConfigError([f"{name}: nested too deeply"]) from None
        self.root = Section(self, "", node)

    def add(self, node: yaml.Node | None, problem: str) -> None:
        """Add a problem of a node; without one, of the document's beginning."""
        mark = node.start_mark if node is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        self._found.append((line, column, problem))

    def problems(self) -> list[str]:
        """Return the problems, in the order of the file."""
        return [
            f"{self.name}:{line}:{column}: {problem}"
            for line, column, problem in sorted(set(self._found))
        ]


class Section:
    """A mapping; each method reads one key of it and adds its problems."""

    def __init__(self, document: Document, path: str, node: yaml.Node | None) -> None:
        self.path = path
        self.node = node
        self._document = document
        self._values: dict[str, yaml.Node] = {}
        self._keys: dict[str, yaml.Node] = {}
        self._asked: set[str] = set()
        if node is None or _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            document.add(node, f"{path or 'the document'}: write keys with values")
            return
        for key, value in node.value:
            self._take(key, value)

    def _take(self, key: yaml.Node, value: yaml.Node) -> None:
        if not isinstance(key, yaml.ScalarNode):
            self._document.add(key, f"{self.path or 'the document'}: a key is a word")
        elif key.value in self._values:
            line = self._keys[key.value].start_mark.line + 1
            where = self.at(key.value)
            self._document.add(key, f"{where} is a duplicate of the key in line {line}")
        else:
            self._keys[key.value] = key
            self._values[key.value] = value

    def at(self, key: str) -> str:
        """Return the path of a key in the document."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Check whether a key has a value."""
        return key in self._values and not _is_null(self._values[key])

    def problem(self, key: str, text: str, *, hidden: bool = False) -> None:
        """Add a problem of a key's value; `text` is the remedy."""
        node = self._values.get(key)
        shown = "(hidden)" if hidden else _shown(node)
        self._document.add(node, f"{self.at(key)} = {shown}: {text}")

    def finish(self) -> None:
        """Add a problem for each unknown key, with the most similar known one."""
        for key, node in self._keys.items():
            if key in self._asked:
                continue
            near = difflib.get_close_matches(key, sorted(self._asked), 1)
            known = ", ".join(sorted(self._asked))
            hint = f"did you mean {near[0]}?" if near else f"known keys: {known}"
            self._document.add(node, f"{self.at(key)} is not known; {hint}")

    # Values

    def read(
        self,
        key: str,
        read: Callable[[str], _Value],
        default: _Value,
        *,
        required: str = "",
        hidden: bool = False,
    ) -> _Value:
        """Return what `read` makes of a text; its ValueError is the problem.

        `required`: what to write when the key is missing.
        """
        self._asked.add(key)
        node = self._values.get(key)
        if node is None or _is_null(node):
            if required:
                self._document.add(
                    self._keys.get(key, self.node),
                    f"{self.at(key)} is missing: {required}",
                )
            return default
        if not isinstance(node, yaml.ScalarNode):
            self.problem(key, "write a single value", hidden=hidden)
            return default
        try:
            text = self._secret(node.value) if hidden else self._plain(node.value)
            return read(text)
        except ValueError as error:
            self.problem(key, str(error), hidden=hidden)
            return default

    def text(self, key: str, default: str = "", *, required: str = "") -> str:
        """Return a text as it is written."""
        return self.read(key, str, default, required=required)

    def secret(self, key: str) -> str:
        """Return a text that is never shown; `${NAME}` is an environment variable."""
        if not self._document.has_secrets:
            self._asked.add(key)
            return UNREAD
        return self.read(key, str, "", hidden=True)

    def truth(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return self.read(key, _truth, default)

    def whole(
        self, key: str, default: int, least: int = 0, most: int = WHOLE_MAX
    ) -> int:
        """Return a whole number."""

        def number(text: str) -> int:
            if not _WHOLE.fullmatch(text):
                raise ValueError(f"write a whole number of at least {least}")
            if not least <= int(text) <= most:
                raise ValueError(f"write a number from {least} to {most}")
            return int(text)

        return self.read(key, number, default)

    def seconds(self, key: str, default: float) -> float:
        """Return a length of time, written with its unit."""
        return self.read(key, _seconds, default)

    def one_of(self, key: str, words: Sequence[str], default: str) -> str:
        """Return one of these words."""

        def word(text: str) -> str:
            if text.lower() in words:
                return text.lower()
            near = difflib.get_close_matches(text.lower(), words, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"write {_listed(words)}{hint}")

        return self.read(key, word, default)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text needs no list."""
        self._asked.add(key)
        node = self._values.get(key)
        if node is None or _is_null(node):
            return ()
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(each, yaml.ScalarNode) and each.value for each in nodes):
            self.problem(key, "write a list of texts: [a, b]")
            return ()
        return tuple(each.value for each in nodes)

    def pairs(self, key: str, *, hidden: bool = False) -> dict[str, str]:
        """Return keys of any name with their texts."""
        section = self.section(key)
        return {
            name: section.read(name, str, "", hidden=hidden) for name in section.names()
        }

    # Nested values

    def names(self) -> list[str]:
        """Return the keys of this section, in their order."""
        return list(self._values)

    def section(self, key: str) -> Section:
        """Return the mapping below a key; empty if it is missing."""
        self._asked.add(key)
        return Section(self._document, self.at(key), self._values.get(key))

    def sections(self, key: str, required: str) -> Iterator[Section]:
        """Yield the mappings of a list, which must have at least one."""
        self._asked.add(key)
        node = self._values.get(key)
        if node is None or _is_null(node):
            where = self._keys.get(key, self.node)
            self._document.add(where, f"{self.at(key)} is missing: {required}")
            return
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.problem(key, f"write a list, a dash before each item: {required}")
            return
        for number, item in enumerate(node.value):
            yield Section(self._document, f"{self.at(key)}[{number}]", item)

    def is_single(self, key: str) -> bool:
        """Check whether a key has a single value: a text, a number or null."""
        return isinstance(self._values.get(key), yaml.ScalarNode)

    def is_null(self, key: str) -> bool:
        """Check whether a key has the value null."""
        return key in self._values and _is_null(self._values[key])

    def ask(self, key: str) -> None:
        """Mark a key as known that is read in another way."""
        self._asked.add(key)

    def _secret(self, text: str) -> str:
        found = _ENVIRONMENT.fullmatch(text)
        if found is None:
            return text
        name = found[1].strip()
        if name not in self._document.environ:
            raise ValueError(f"the environment variable {name} is not set")
        return self._document.environ[name]

    def _plain(self, text: str) -> str:
        if _ENVIRONMENT.fullmatch(text):
            raise ValueError(
                "only secrets may come from the environment; write a value"
            )
        return text


def written(content: Mapping[str, object]) -> str:
    """Return nested mappings, lists and texts as YAML, keys in their order."""
    text: str = yaml.safe_dump(
        content, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _shown(node: yaml.Node | None) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return "…"
    return quoted(node.value)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError("write true or false")
    return _TRUTHS[text.lower()]


def _seconds(text: str) -> float:
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError("write a number with its unit: 500ms, 30s, 10m, 6h or 7d")
    return int(found[1]) * _SECONDS[found[2]]


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
