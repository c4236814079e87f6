"""Compares entries in JSON form with those of a golden file."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from golden_form import Json, Workload

ABSENT = "(absent)"

# Names of types as statements may write them, and as the server reports them.
_WORDS = {
    "int2": "smallint", "middleint": "mediumint", "integer": "int", "int8": "bigint",
    "bool": "tinyint", "boolean": "tinyint", "numeric": "decimal", "fixed": "decimal",
    "dec": "decimal", "real": "double", "double precision": "double",
    "serial": "bigint unsigned", "geometrycollection": "geomcollection",
}  # fmt: skip
_LENGTHS_THAT_SAY_NOTHING = {
    "tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "year",
}  # fmt: skip
_DEFAULT_ARGUMENTS = {"char": "(1)", "bit": "(1)", "decimal": "(10,0)"}
_TYPE = re.compile(
    r"([a-z0-9 ]+?)\s*(\(.*\))?((?: unsigned| zerofill)*)", re.IGNORECASE | re.DOTALL
)


def plain_type(text: str) -> str:
    """Return one spelling for all of a column type's."""
    found = _TYPE.fullmatch(text)
    if found is None:
        return text
    base, arguments, attributes = found[1].lower(), found[2] or "", found[3].lower()
    base = _WORDS.get(base, base)
    if base in _LENGTHS_THAT_SAY_NOTHING or arguments == "(0)":
        arguments = "" if "," not in arguments else arguments
    return base + (arguments or _DEFAULT_ARGUMENTS.get(base, "")) + attributes


def _steps(path: str) -> list[str | int]:
    return [
        int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)
    ]


def _parent(value: Any, path: str) -> tuple[Any, str | int]:
    *steps, last = _steps(path)
    for step in steps:
        value = value[step]
    return value, last


def expected_entries(workload: Workload) -> list[Json]:
    """Return what is right: the golden file, with its faults repaired."""
    faults = workload.faults
    golden = copy.deepcopy(workload.golden)
    for fault in faults.get("faults", ()):
        parent, key = _parent(golden, fault["path"])
        assert parent[key] == fault["original"], fault["path"]
        parent[key] = fault["right"]
    for each in faults.get("replaced", ()):
        golden[each["n"]] = each["entry"]
    if "stops" in faults:
        del golden[faults["stops"]["after"] :]
    assert not faults.get("lost"), "no workload has entries that were lost"
    return golden


def differences(
    expected: object, got: object, path: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield (path, expected, got) of all that differs, but for spelling of types."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in expected.keys() | got.keys():
            yield from differences(
                expected.get(key, ABSENT),
                got.get(key, ABSENT),
                f"{path}.{key}" if path else key,
            )
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            yield path, f"{len(expected)} items", f"{len(got)} items"
        for n, pair in enumerate(zip(expected, got, strict=False)):
            yield from differences(*pair, f"{path}[{n}]")
    elif expected != got:
        if path.endswith(".mysqlType") and plain_type(str(expected)) == plain_type(
            str(got)
        ):
            return
        yield path, expected, got


def compare(
    workload: Workload, got: list[Json], *, extra: frozenset[int] = frozenset()
) -> list[tuple[str, object, object]]:
    """Return what differs, as (path, expected, got); `extra`: our entries left out.

    Where either value is accepted, the original's is; where any is, nothing is
    compared.
    """
    expected = expected_entries(workload)
    got = copy.deepcopy([entry for n, entry in enumerate(got) if n not in extra])
    if "stops" in workload.faults:
        del got[len(expected) :]
    for fault in workload.faults.get("faults", ()):
        entry = int(_steps(fault["path"])[0])
        if entry >= min(len(expected), len(got)):
            continue
        try:
            parent, key = _parent(got, fault["path"])
            accepted = fault.get("accept")
            if accepted == "any" or (
                accepted == "either" and parent[key] == fault["original"]
            ):
                parent[key] = fault["right"]
        except (LookupError, TypeError):
            pass  # another difference, which is found below
    found: list[tuple[str, object, object]] = []
    if len(expected) != len(got):
        found.append(("entries", len(expected), len(got)))
    for n, pair in enumerate(zip(expected, got, strict=False)):
        for each in pair:
            each.pop("n", None)
        found += differences(*pair, str(n))
    return found


def brief(value: object) -> str:
    """Return a value's beginning, for messages."""
    return json.dumps(value, ensure_ascii=False)[:120]
