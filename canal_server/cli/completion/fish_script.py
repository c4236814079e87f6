"""The script for fish 3 and later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.completion.completion_tree import Kind

if TYPE_CHECKING:
    from canal_server.cli.completion.completion_tree import Command, Option, Value

_SCRIPT = """\
# fish completion of canal-server, printed by `canal-server completion fish`

# Prints the command of the command line, with its action.
function __canal_server_command
    set -l command
    set -l is_value no
    for word in (commandline -opc)[2..-1]
        if test $is_value = yes
            set is_value no
        else if string match -q -- '-*' $word
            switch "$command $word"
{with_values}
                    set is_value yes
            end
        else
            switch "$command $word"
                case {commands}
                    set command "$command $word"
            end
        end
    end
    echo $command
end

function __canal_server_at
    test (__canal_server_command) = "$argv[1]"
end

# The destinations in the conf folder of the command line.
function __canal_server_destinations
    set -l conf conf
    set -q CANAL_CONF[1]; and set conf $CANAL_CONF
    set -l words (commandline -opc)
    for i in (seq (count $words))
        switch $words[$i]
            case --conf
                set -q words[(math $i + 1)]; and set conf $words[(math $i + 1)]
            case '--conf=*'
                set conf (string replace -- --conf= '' $words[$i])
        end
    end
    set conf (string replace -r -- '^~' $HOME $conf)
    for each in $conf/*/instance.properties
        basename (dirname $each)
    end
end

complete -c canal-server -f
{rules}
"""
_ACTIONS: Final = {
    Kind.UNKNOWN: "-x",
    Kind.FILE: "-r -F",
    Kind.FOLDER: "-x -a '(__fish_complete_directories (commandline -ct))'",
    Kind.DESTINATION: "-x -a '(__canal_server_destinations)'",
}


def fish_script(program: Command) -> str:
    """Return the script."""
    with_values = [
        f"{_name(command)} {name}"
        for command in program.all()
        for option in command.options
        for name in option.names
        if option.value is not None
    ]
    commands = [_name(each) for each in program.all() if each.words]
    cases = " \\\n                    ".join(map(_quoted, with_values))
    return _SCRIPT.format(
        with_values=f"                case {cases}",
        commands=" ".join(map(_quoted, commands)),
        rules="\n".join(rule for each in program.all() for rule in _rules(each)),
    )


def _name(command: Command) -> str:
    return "".join(f" {word}" for word in command.words)


def _rules(command: Command) -> list[str]:
    """Return what completes what follows a command."""
    condition = _quoted(f"__canal_server_at {_quoted(_name(command))}")
    start = f"complete -c canal-server -n {condition}"
    rules = [
        f"{start} -a {each.words[-1]} -d {_quoted(each.text)}"
        for each in command.actions
    ]
    rules += [f"{start} {_option(option)}" for option in command.options]
    if not command.actions:
        rules += [f"{start} {_argument(each)}" for each in command.arguments[-1:]]
    return rules


def _option(option: Option) -> str:
    names = [
        f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-s {name[1:]}"
        for name in option.names
    ]
    value = "" if option.value is None else f" {_argument(option.value)}"
    return f"{' '.join(names)}{value} -d {_quoted(option.text)}"


def _argument(value: Value) -> str:
    if value.kind is Kind.CHOICE:
        return f"-x -a {_quoted(' '.join(value.choices))}"
    return _ACTIONS[value.kind]


def _quoted(text: str) -> str:
    r"""Return a text in quotes, in which \\ and ' are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
