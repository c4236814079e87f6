"""The cause of a Spark error, in one line.

Errors arrive as texts of the JVM, with stack traces and Python tracebacks inside; the
first line of such a text seldom names the cause.
"""

from __future__ import annotations

import re
from typing import Final

TEXT_MAX: Final = 600
_QUERY: Final = "\n=== Streaming Query"  # Spark's description of the query follows
_TRACEBACK: Final = "Traceback (most recent call last):"
# The last line of a traceback: the error and its message.
_RAISED: Final = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_BARE: Final = ("KeyError",)  # errors whose message is only a name
_CALLING: Final = re.compile(r"An error occurred while calling \S+\n: ")
_CLASS: Final = re.compile(r"(?:[a-z]\w*\.)+[\w$]+: ")  # of Java
_CAUSE: Final = "Caused by: "
_STACK: Final = re.compile(
    rf"\n\s*at |\n\s*\.\.\. \d+ more|\n{_CAUSE}|\nDriver stacktrace:"
    r"|\nThis stopped SparkContext was created at:"
)
# Remedies for some errors.
_HINTS: Final = {
    "No module named 'canal_server.": (
        "they found a canal_server without its compiled modules, such as a checkout's: "
        "start in another folder, or with PYTHONSAFEPATH=1"
    ),
    "No module named": (
        "install canal-server[mirror] where executors run, for the Python that they "
        "run: see spark.pyspark.python"
    ),
    "Cannot run program": "see spark.pyspark.python",
    "JAVA_GATEWAY": "install Java 17 or later, in PATH or in JAVA_HOME",
}


def reason(error: object) -> str:
    """Return an error's message without stack traces, and its remedy."""
    text = str(error).partition(_QUERY)[0].strip()
    text_found = _raised(text) or _thrown(text) or repr(error)
    text_found = " ".join(text_found.split()).removesuffix(".")[:TEXT_MAX]
    hints = [hint for fragment, hint in _HINTS.items() if fragment in text_found]
    return "; ".join((text_found, *hints[:1]))  # the first is the most specific


def _raised(text: str) -> str:
    """Return the last line of the last traceback in a text; empty without one."""
    _, traceback, rest = text.rpartition(_TRACEBACK)
    if not traceback:
        return ""
    for line in rest.splitlines():
        found = _RAISED.match(line)
        if found:
            return found[2] if found[2] and found[1] not in _BARE else line
    return ""


def _thrown(text: str) -> str:
    """Return the JVM's message, or that of its cause if the message is empty.

    This is so for `Exception thrown in awaitResult: `.
    """
    text = _CALLING.sub("", text, count=1)
    text_found = _CLASS.sub("", _STACK.split(text, maxsplit=1)[0], count=1).strip()
    _, causes, rest = text.rpartition(f"\n{_CAUSE}")
    if causes and text_found.endswith(":"):
        return f"{text_found} {rest.partition(chr(10))[0]}"
    return text_found
