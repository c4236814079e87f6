"""The handler that `--handler` names, made with the settings of `--set`.

Leaves out what handlers do. Errors never show values of settings, which may be secret.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import traceback
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from canal_server.client.handlers.handler import calls_of
from canal_server.errors import CanalError, ConfigError
from canal_server.model.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PACKAGE: Final = "canal_server.client.handlers"
READY: Final = {
    "json-lines": f"{_PACKAGE}.json_lines_file:JsonLines",
    "parquet": f"{_PACKAGE}.parquet_files:ParquetFiles",
    "sql": f"{_PACKAGE}.sql_upsert:SqlUpsert",
    "kafka": f"{_PACKAGE}.kafka_topics:KafkaTopics",
    "webhook": f"{_PACKAGE}.webhook:Webhook",
}
_BOOLEANS: Final = {
    "true": True, "yes": True, "1": True, "false": False, "no": False, "0": False
}  # fmt: skip


def settings_of(
    pairs: Iterable[str], variables: Iterable[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of `--set KEY=VALUE` and `--set-env KEY=VARIABLE`.

    Raises ConfigError.
    """
    problems: list[str] = []
    found: dict[str, str] = {}
    for option, given in (("--set", pairs), ("--set-env", variables)):
        for pair in given:
            key, equals, value = pair.partition("=")
            if not (key and equals):
                problems.append(f"{option} {quoted(key)}: expected KEY=…")
            elif option == "--set-env" and value not in environ:
                problems.append(
                    f"--set-env {key}: the environment variable {value} is not set"
                )
            elif key in found:
                problems.append(f"{option} {key}: the setting is given twice")
            else:
                found[key] = environ[value] if option == "--set-env" else value
    if problems:
        raise ConfigError(problems)
    return found


def load_handler(spec: str, settings: Mapping[str, str]) -> object:
    """Return the handler, which is not opened yet.

    A class or another callable that is not a handler itself is called with the
    settings. Raises ConfigError.
    """
    found = _found(spec)
    if isinstance(found, type):
        return _made(spec, found, settings)
    if settings:
        raise ConfigError(
            [f"--set: {spec} is not a class, so it has no settings; name a class"]
        )
    try:
        calls_of(found)
    except TypeError as error:
        raise ConfigError([f"--handler {spec}: {error}"]) from None
    return found


def _found(spec: str) -> Any:
    """Return what a name stands for. Raises ConfigError."""
    module_name, colon, path = READY.get(spec, spec).partition(":")
    if not (module_name and colon and path):
        names = ", ".join(READY)
        raise ConfigError(
            [f"--handler {quoted(spec)}: expected module:name, or one of {names}"]
        )
    # As for `python -m`: modules in the current folder are found.
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Any = _imported(spec, module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(
                [f"--handler {spec}: {_name_of(found)} has no {quoted(name)}"]
            )
        found = getattr(found, name)
    return found


def _imported(spec: str, module_name: str) -> types.ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{module_name}.".startswith(f"{missing}."):
            text = f"there is no module {missing} in {Path.cwd()} or installed"
        else:
            text = f"{module_name} needs {missing}, which is not installed"
        raise ConfigError([f"--handler {spec}: {text}"]) from None
    except Exception as error:
        # The program's own code: where it fails is what its author needs.
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        raise ConfigError(
            [f"--handler {spec}: {module_name} cannot be imported: {what}"]
        ) from error


def _name_of(found: Any) -> str:
    return getattr(found, "__name__", None) or repr(found)


def _made(spec: str, kind: type, settings: Mapping[str, str]) -> object:
    """Return a handler made of a class and its settings. Raises ConfigError."""
    parameters = _parameters(kind)
    problems = [
        f"--set {key}: {spec} has no such setting; it has {', '.join(parameters)}"
        for key in settings.keys() - parameters.keys()
    ]
    problems += [
        f"--set {name}=…: {spec} requires it"
        for name, each in parameters.items()
        if each.default is each.empty and name not in settings
    ]
    values = {}
    for key in settings.keys() & parameters.keys():
        try:
            values[key] = _converted(settings[key], parameters[key].annotation)
        except ValueError as error:
            problems.append(f"--set {key}: {error}")
    if problems:
        raise ConfigError(sorted(problems))
    try:
        made: object = kind(**values)
        calls_of(made)
    except (TypeError, ValueError, CanalError) as error:
        raise ConfigError([f"--handler {spec}: {error}"]) from error
    return made


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """Return the settings of a class, with the types as far as they are known."""
    function: Callable[..., Any] = kind.__init__  # type: ignore[misc]
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):  # a type that is imported for type checkers only
        hints = {}
    signature = inspect.signature(function)
    return {
        name: each.replace(annotation=hints.get(name, each.annotation))
        for name, each in list(signature.parameters.items())[1:]
        if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
        and not _is_function(each.default)  # such as a clock: it cannot be a text
    }


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


def _converted(text: str, kind: Any) -> Any:
    """Return a setting as the type of its parameter. Raises ValueError."""
    if typing.get_origin(kind) in {Union, types.UnionType}:
        kinds = [each for each in typing.get_args(kind) if each is not type(None)]
        kind = str if str in kinds else kinds[0]
    if typing.get_origin(kind) is Literal:
        choices = [str(each) for each in typing.get_args(kind)]
        if text not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
    if kind is bool or kind == "bool":
        if text.lower() not in _BOOLEANS:
            raise ValueError("expected true or false")
        return _BOOLEANS[text.lower()]
    for number, name in ((int, "an integer"), (float, "a number")):
        if kind is number or kind == number.__name__:
            try:
                found = number(text)
            except ValueError:
                raise ValueError(f"expected {name}") from None
            if not math.isfinite(found):
                raise ValueError(f"expected {name}")
            return found
    return Path(text) if kind is Path else text
