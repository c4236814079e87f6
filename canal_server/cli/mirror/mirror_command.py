"""`canal-server mirror`: replicate tables into a data lake.

The work is done by the package `mirror`, which needs an optional extra and is therefore
loaded by name on demand.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from canal_server.cli import FAILED
from canal_server.cli.conf_options import VARIABLE, default_conf
from canal_server.cli.mirror import mirror_inspect, mirror_sql
from canal_server.cli.start import log_to
from canal_server.errors import CanalError, ConfigError
from canal_server.messages.mirror import mirror_run_messages
from canal_server.runtime.lifecycle import Stop
from canal_server.runtime.log_levels import LEVELS

if TYPE_CHECKING:
    import argparse

log = logging.getLogger(__name__)

DEFAULT: Final = "mirror.yml"
STOP_TIMEOUT_S: Final = (
    120.0  # for a batch and for Spark to finish; then the process exits
)
EXTRA: Final = ("deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyspark")
SPARKS: Final = ("py4j", "pyspark")
_OF_THE_LAKE: Final = ("status", "plot", "sql")  # actions that read only the lake
NOT_CONNECTED: Final = "Py4JNetworkError"


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the options of this command, and its actions."""
    parser = subparsers.add_parser(
        "mirror",
        help="replicate tables into a data lake with Spark",
        description="Copy tables into a data lake and keep the copies up to date, in "
        "the foreground, until a signal. A restart resumes where the mirror stopped. "
        "With --once, it ends as soon as the copies have everything that the binlog "
        "had at the start. Exit status: 0 success, 1 failure; with --once also a table "
        "that is stopped, 5 minutes without progress, or a signal before the end; 2 "
        "invalid settings or options, 130 interrupted by Ctrl-C.",
    )
    _add_conf(parser, _default_conf())
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print what would be done and any "
        "problems; write nothing")  # fmt: skip
    add("--once", action="store_true", help="copy what is to be copied, follow to the "
        "current end of the binlog, and end")  # fmt: skip
    add("--log-level", choices=LEVELS, default="info", help="minimum level of log "
        "messages (default: %(default)s)")  # fmt: skip
    actions = parser.add_subparsers(dest="action", metavar="action")
    status = actions.add_parser(
        "status",
        help="show the state of a mirror",
        description="Show the state of a mirror, as recorded in the lake.",
    )
    _add_conf(status)
    status.add_argument("--json", action="store_true", help="print JSON")
    copy = actions.add_parser(
        "copy",
        help="copy tables again",
        description="Request a new copy of tables: made at once if the mirror runs, "
        "else when it starts. With --all and a stopped mirror, its stream restarts at "
        "the end of the binlog as well, which recovers from purged binlog files.",
    )
    _add_conf(copy)
    copy.add_argument("--json", action="store_true", help="print JSON")
    which = copy.add_mutually_exclusive_group(required=True)
    which.add_argument("table", nargs="*", default=[], help="schema.table")
    which.add_argument("--all", action="store_true", help="all tables of the mirror")
    mirror_inspect.add_parsers(actions, _add_conf)
    mirror_sql.add_parser(actions, _add_conf)


def _default_conf() -> str:
    """Return the settings file that is used without `--conf`."""
    beside = default_conf() / DEFAULT
    return str(beside) if VARIABLE in os.environ and beside.is_file() else DEFAULT


def _add_conf(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    keywords: dict[str, Any] = {"default": default}
    if default is None:
        # Keep the value given before the action.
        import argparse  # noqa: PLC0415  # otherwise imported for types only

        keywords["default"] = argparse.SUPPRESS
    parser.add_argument(
        "--conf",
        metavar="FILE",
        help=f"settings of the mirror (default: {DEFAULT} in the folder ${VARIABLE} if "
        f"it exists, else ./{DEFAULT})",
        **keywords,
    )


def run(args: argparse.Namespace) -> int:
    """Run the action; without one, mirror until a signal.

    Raises CanalError.
    """
    act = {
        None: _mirror,
        "status": _status,
        "copy": _copy,
        "verify": mirror_inspect.verify,
        "plot": mirror_inspect.plot,
        "sql": mirror_sql.sql,
    }[args.action]
    try:
        settings = _load("settings.settings_file").load(
            args.conf, os.environ, has_secrets=args.action not in _OF_THE_LAKE
        )
        if args.action is None and args.dry_run:
            return _dry_run(settings)
        return act(args, settings)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRA:
            raise
        raise CanalError(
            f"the mirror needs {name}, which is not installed: "
            "pip install 'canal-server[mirror]'"
        ) from None
    except Exception as error:
        if _is_sparks(error):
            raise _spark_failure(error) from None
        raise


def _load(module: str) -> Any:
    return importlib.import_module(f"canal_server.mirror.{module}")


def _dry_run(settings: Any) -> int:
    found = _load("run.dry_run").dry_run(settings)
    for line in found.lines():
        print(line)
    sys.stdout.flush()
    if found.problems:
        raise ConfigError(found.problems)
    print("\nno problems found")
    return 0


def _status(args: argparse.Namespace, settings: Any) -> int:
    overview = _load("run.overview")
    found = overview.overview(settings)
    if args.json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        for line in overview.as_text(found):
            print(line)
    return 0


def _copy(args: argparse.Namespace, settings: Any) -> int:
    requests = _load("run.requests")
    if args.all:
        found = requests.copy_all(settings)
    else:
        found = requests.copy_tables(settings, args.table)
    if args.json:
        shown = {"tables": list(map(str, found.tables)), "runs_on": found.runs_on}
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        _warn(found.warning)
        return 0
    when = f"by {found.runs_on}" if found.runs_on else "when the mirror starts"
    print(f"will be copied again {when}:")
    for name in found.tables:
        print(f"  {name}")
    _warn(found.warning)
    return 0


def _warn(text: str) -> None:
    if text:
        print(f"canal-server mirror copy: {text}", file=sys.stderr)


# --- mirroring ------------------------------------------------------------------------


def _mirror(args: argparse.Namespace, settings: Any) -> int:
    """Run the mirror on its own thread while this thread waits for signals."""
    from canal_server.daemon.process_signals import signals  # noqa: PLC0415  # not needed by the other actions

    module, shown = _load("run.run"), _load("run.progress")
    progress = shown.Progress()
    log_to(args.log_level, shown.AsideHandler(progress, sys.stderr))
    for name in SPARKS:
        logging.getLogger(name).setLevel(logging.WARNING)
    stop = Stop()
    ended = _Ended()

    def work() -> None:
        try:
            module.run(settings, progress, stop, once=args.once)
        except BaseException as error:  # noqa: BLE001  # raised again by the main thread
            ended.error = error
        finally:
            stop.request()

    # Spark installs signal handlers if the main thread starts it.
    thread = threading.Thread(target=work, name="mirror", daemon=True)
    with signals("mirror") as wait:
        thread.start()
        signal = wait(stop)
        if signal:
            log.info("received %s, shutting down (repeat to force)", signal)
        stop.request()
        thread.join(STOP_TIMEOUT_S)
    progress.close()
    if thread.is_alive():
        mirror_run_messages.MIRROR_STOP_TIMED_OUT.log(log, STOP_TIMEOUT_S)
        logging.shutdown()
        os._exit(FAILED)
    ended.raise_error()
    log.info("stopped")
    return 0


class _Ended:
    """The outcome of the mirror's thread."""

    error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise the error that ended it; errors of Spark get a readable message."""
        error = self.error
        if error is None:
            return
        if _is_jvm_lost(error):
            raise CanalError(
                "the JVM of Spark no longer answers: it was killed or ran out of "
                "memory (see above); restart the mirror to resume"
            ) from None
        if _is_sparks(error):
            raise _spark_failure(error) from None
        if isinstance(error, OSError):
            raise CanalError(str(error)) from error  # no server could be reached
        raise error


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in SPARKS


def _spark_failure(error: BaseException) -> CanalError:
    """Return an error with the reason of a Spark error."""
    return CanalError(f"Spark failed: {_load('session.spark_errors').reason(error)}")


def _is_jvm_lost(error: BaseException) -> bool:
    """Return whether an error means that the JVM of Spark no longer exists."""
    if isinstance(error, OSError):
        return _follows_from_spark(error)
    return type(error).__name__ == NOT_CONNECTED


def _follows_from_spark(error: BaseException) -> bool:
    """Return whether an error was raised while a Spark error was handled."""
    before: BaseException | None = error
    while before is not None:
        if _is_sparks(before):
            return True
        before = before.__cause__ or before.__context__
    return False
