"""Messages for errors of Spark: the cause, in one line."""

from __future__ import annotations

import pytest

from canal_server.mirror.session.spark_errors import TEXT_MAX, reason

# As Spark 4.3 says it, with fewer lines of the stacks.
LOADS = (
    "Traceback (most recent call last):\n"
    '  File "/lib/pyspark.zip/pyspark/worker_util.py", line 75, in read_command\n'
    "    command = serializer.loads(file)\n"
    "              ^^^^^^^^^^^^^^^^^^^^^^\n"
    '  File "/lib/pyspark.zip/pyspark/serializers.py", line 483, in loads\n'
    "    return cloudpickle.loads(obj, encoding=encoding)\n"
    "ModuleNotFoundError: No module named 'canal_server'"
)
NO_PACKAGE = (
    "No module named 'canal_server'; install canal-server[mirror] where executors "
    "run, for the Python that they run: see spark.pyspark.python"
)
INCOMPLETE = (
    "No module named 'canal_server.arrow.typed_rows'; they found a canal_server "
    "without its compiled modules, such as a checkout's: start in another folder, or "
    "with PYTHONSAFEPATH=1"
)
SOURCE = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: "
    f"{LOADS}\n SQLSTATE: 38000"
)
LOST = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent "
    "failure: Lost task 0.0 in stage 0.0 (TID 0) (192.0.2.2 executor 1): "
)
STACK = "\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
NO_PYTHON = (
    'java.io.IOException: Cannot run program "/nowhere/python": error=2, No such file '
    "or directory"
)
AWAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult: "


CALLING = "An error occurred while calling o57.collectToPython.\n: "
NOT_FOUND = f"Caused by: java.io.IOException: error=2, No such file or directory{STACK}"
DRIVER = f"\n\nDriver stacktrace:{STACK}\n"
AWAITED_PYTHON = (
    f"{CALLING}{AWAITED}{STACK}\n\t... 4 more\nCaused by: {LOST}{LOADS}\n{STACK}"
)
NOT_RUN = (
    f"{CALLING}org.apache.spark.SparkException: {LOST}{NO_PYTHON}{STACK}\n{NOT_FOUND}"
)
NO_SERVICE = "java.io.IOException: Failed to connect to /192.0.2.1:7078"
NO_URL = "Could not parse Master URL: 'sparkk://a'"
STOPPED = (
    "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
    ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    "\nThis stopped SparkContext was created at:\n\n"
    "org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)\n"
)
NO_JAVA = "[JAVA_GATEWAY_EXITED] Java gateway process exited"
CHAINED = (
    f"{LOADS}\n\nDuring handling of it:\n\nTraceback (most recent call last):\n"
    "  File x\npyarrow.lib.ArrowInvalid: no disk\n=== Streaming Query ===\na: b"
)
KEY_ERROR = "Traceback (most recent call last):\n  File x\nKeyError: 'a'"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"An exception was thrown from the Python worker:\n{LOADS}", NO_PACKAGE),
        (SOURCE, NO_PACKAGE),
        (
            SOURCE.replace("'canal_server'", "'canal_server.arrow.typed_rows'"),
            INCOMPLETE,
        ),
        (f"{AWAITED_PYTHON}{DRIVER}", NO_PACKAGE),
        (f"{NOT_RUN}{DRIVER}", f"{LOST}{NO_PYTHON}; see spark.pyspark.python"),
        (
            f"{CALLING}{AWAITED}{STACK}\nCaused by: {NO_SERVICE}",
            f"Exception thrown in awaitResult: {NO_SERVICE}",
        ),
        (f"{CALLING}org.apache.spark.SparkException: {NO_URL}{STACK}", NO_URL),
        (STOPPED, "Cannot call methods on a stopped SparkContext"),
        (
            f"{NO_JAVA}.",
            f"{NO_JAVA}; install Java 17 or later, in PATH or in JAVA_HOME",
        ),
        (CHAINED, "no disk"),
        (KEY_ERROR, "KeyError: 'a'"),
        ("[ONE] line\nand another", "[ONE] line and another"),
    ],
)
def test_the_cause_is_reported(text: str, expected: str) -> None:
    """Of tracebacks, of stacks of the JVM, of both; with what to do where known."""
    assert reason(RuntimeError(text)) == expected


def test_what_says_nothing() -> None:
    """An error without a text is shown by its class; a long text is shortened."""
    assert reason(RuntimeError()) == "RuntimeError()"
    assert len(reason("x" * 5000)) == TEXT_MAX
