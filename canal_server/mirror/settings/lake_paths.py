"""Names of folders in the lake, and paths that not every engine can read.

Leaves out which folder a table has (`selected_tables`).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from canal_server.mirror.settings.mirror_settings import MirrorSettings

# File systems allow 255 bytes. Only names with many characters beyond ASCII reach it,
# as MySQL's have at most 64 characters.
NAME_MAX: Final = 200
_HASH_DIGITS: Final = 16  # of a longer name

# delta-rs cannot write there, or writes to another folder.
_UNUSABLE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\\\[\]|^]")
# Encoded or cut off in URLs, or wildcards.
_DOUBTFUL: Final = re.compile('[^\x21-\x7e]|[%#?+*{}:"<>`]')


def as_folder(name: str) -> str:
    """Return a name in ASCII that differs for each `name`, as part of a path.

    A character that is not a letter or digit of ASCII or one of `_-.$~` is written as
    the bytes of its UTF-8 in hexadecimal, each after a `!`: `!20`, `!C3!A9`. Not as
    `%20`: delta-rs decodes that, and then looks for files in another folder. A name
    that would be too long ends with `!!` and a hash instead.
    """
    characters = [_encoded(char) for char in name]
    if name[:1] in (".", "_"):
        characters[0] = f"!{ord(name[0]):02X}"  # such folders are hidden
    if sum(map(len, characters)) <= NAME_MAX:
        return "".join(characters)
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    ending = f"!!{digest}"
    while sum(map(len, characters)) > NAME_MAX - len(ending):
        characters.pop()
    return f"{''.join(characters)}{ending}"


def as_former_folder(name: str) -> str:
    """Return the name that earlier versions used: letters of all scripts are kept."""
    text = "".join(char if char.isalnum() else _encoded(char) for char in name)
    return f"!{ord(text[0]):02X}{text[1:]}" if text[:1] in (".", "_") else text


def _encoded(char: str) -> str:
    return quote(char, safe="_-.$").replace("%", "!")


def path_problem(path: str) -> str:
    """Return why no Delta table can be at a path, else ""."""
    found = _UNUSABLE.search(path)
    if found is None:
        return ""
    if found[0].startswith("%"):
        return (
            f"readers of Delta tables decode {found[0]}: write a folder without "
            "percent-encoding"
        )
    return f"delta-rs cannot write to a path with {found[0]!r}: write another folder"


def path_warnings(settings: MirrorSettings) -> Iterator[str]:
    """Yield which folders of the settings some engines may be unable to read."""
    if warning := path_warning(settings.lake.path):
        yield f"lake.path: {warning}"
    for rule in settings.tables:
        if warning := path_warning(rule.to.format(schema="s", table="t")):
            yield f"{rule.location}: to: {warning}"


def checkpoint_warning(settings: MirrorSettings) -> str:
    """Return why Spark may be unable to store its checkpoint, else "".

    It may have been given what it lacks elsewhere, for example in its own folder.
    """
    given = ("spark.jars", "spark.hadoop.fs.")
    if "://" not in settings.checkpoint or any(
        name.startswith(given) for name in settings.spark
    ):
        return ""
    return (
        f"checkpoint: Spark has no access to {settings.checkpoint} of its own: set "
        "checkpoint to a folder that all machines share, or give Spark the connector "
        "of the store, for S3 hadoop-aws (spark.jars.packages, spark.hadoop.fs.s3.impl)"
    )


def path_warning(path: str) -> str:
    """Return which engines may be unable to read tables below a path, else ""."""
    _, _, rest = path.rpartition("://")
    found = dict.fromkeys(_DOUBTFUL.findall(rest))
    if not found:
        return ""
    characters = " ".join(_shown(each) for each in found)
    return (
        f"{path} has {characters}: some engines decode such characters, take them for "
        "wildcards or end the path there; A-Z a-z 0-9 / . _ - = are safe for all"
    )


def _shown(char: str) -> str:
    return "a space" if char == " " else char if char.isprintable() else repr(char)
