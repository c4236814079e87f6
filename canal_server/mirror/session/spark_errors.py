"""What an error of Spark says: its cause, in one line.

Errors come as texts of the JVM, which have stack traces, and tracebacks of Python in
them; the first line of such a text seldom tells the cause.
"""

from __future__ import annotations

import re
from typing import Final

TOLD_MAX: Final = 600
_QUERY: Final = "\n=== Streaming Query"  # what it tells of itself comes behind it
_TRACEBACK: Final = "Traceback (most recent call last):"
# The line that ends a traceback: what was raised, with what it says.
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_BARE: Final = ("KeyError",)  # what they say is a name alone
_CALLING: Final = re.compile(r"An error occurred while calling \S+\n: ")
_CLASS: Final = re.compile(r"(?:[a-z]\w*\.)+[\w$]+: ")  # of Java
_CAUSE: Final = "Caused by: "
_STACK: Final = re.compile(
    rf"\n\s*at |\n\s*\.\.\. \d+ more|\n{_CAUSE}|\nDriver stacktrace:"
    r"|\nThis stopped SparkContext was created at:"
)
# What to do about some of them.
_HINTS: Final = {
    "No module named 'canal_server.": (
        "they found a canal_server without its compiled parts, as a checkout's: start "
        "in another folder, or with PYTHONSAFEPATH=1"
    ),
    "No module named": (
        "canal-server[mirror] has to be installed where executors run, for the Python "
        "that they run: see spark.pyspark.python"
    ),
    "Cannot run program": "see spark.pyspark.python",
    "JAVA_GATEWAY": "see that Java 17 or later is in PATH or named by JAVA_HOME",
}


def reason(error: object) -> str:
    """Return what an error says, without stack traces, and what to do about it."""
    text = str(error).partition(_QUERY)[0].strip()
    told = _raised(text) or _thrown(text) or repr(error)
    told = " ".join(told.split()).removesuffix(".")[:TOLD_MAX]
    hints = [hint for said, hint in _HINTS.items() if said in told]
    return "; ".join((told, *hints[:1]))  # the first one is the nearest


def _raised(text: str) -> str:
    """Return what the last traceback within a text ends with; nothing without one."""
    _, traceback, behind = text.rpartition(_TRACEBACK)
    if not traceback:
        return ""
    for line in behind.splitlines():
        found = _RAISED.match(line)
        if found:
            return found[2] if found[2] and found[1] not in _BARE else line
    return ""


def _thrown(text: str) -> str:
    """Return what the JVM says, or what is said of the cause where that says nothing.

    So it is with `Exception thrown in awaitResult: `.
    """
    text = _CALLING.sub("", text, count=1)
    told = _CLASS.sub("", _STACK.split(text, maxsplit=1)[0], count=1).strip()
    _, causes, behind = text.rpartition(f"\n{_CAUSE}")
    if causes and told.endswith(":"):
        return f"{told} {behind.partition(chr(10))[0]}"
    return told
