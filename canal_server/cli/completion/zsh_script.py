"""The script for zsh, a file named `_canal-server` in a folder of `$fpath`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.cli.completion.completion_tree import Kind

if TYPE_CHECKING:
    from canal_server.cli.completion.completion_tree import Command, Option, Value

_SCRIPT = """\
#compdef canal-server
# zsh completion of canal-server, printed by `canal-server completion zsh`

# The destinations in the conf folder of the command line.
_canal-server_destinations() {{
    local conf=${{CANAL_CONF:-conf}}
    [[ -z ${{opt_args[--conf]}} ]] || conf=${{(Q)opt_args[--conf]}}
    local -a found=(${{~conf/#\\~/$HOME}}/*/instance.properties(N:h:t))
    _describe destination found
}}

{functions}

if [[ $funcstack[1] == _canal-server ]]; then
    _canal-server "$@"
else
    compdef _canal-server canal-server
fi
"""
_ACTIONS: Final = {
    Kind.UNKNOWN: "",
    Kind.FILE: "_files",
    Kind.FOLDER: "_files -/",
    Kind.DESTINATION: "_canal-server_destinations",
}


def zsh_script(program: Command) -> str:
    """Return the script."""
    functions = "\n\n".join(_function(each) for each in program.all())
    return _SCRIPT.format(functions=functions)


def _function(command: Command) -> str:
    """Return the function that completes what follows a command."""
    name = "-".join(("_canal-server", *command.words))
    specs = [_spec(option) for option in command.options]
    if not command.actions:
        specs += [
            f"'*:{_escaped(value.name)}:{_action(value)}'"
            for value in command.arguments[-1:]
        ]
        return f"{name}() {{\n    {_arguments(specs, '-s -S')}\n}}"
    specs += ["'1: :->command'", "'*:: :->rest'"]
    listed = "\n".join(
        f"            '{_escaped(each.words[-1])}:{_quoted(each.text)}'"
        for each in command.actions
    )
    names = "|".join(each.words[-1] for each in command.actions)
    return f"""{name}() {{
    local curcontext=$curcontext state line ret=1
    local -A opt_args
    {_arguments(specs, "-C")} && ret=0
    case $state in
    command)
        local -a commands=(
{listed}
        )
        _describe command commands && ret=0
        ;;
    rest)
        curcontext=${{curcontext%:*:*}}:{name.removeprefix("_")}-$words[1]:
        case $words[1] in
        {names}) {name}-$words[1] && ret=0 ;;
        esac
        ;;
    esac
    return ret
}}"""


def _arguments(specs: list[str], flags: str) -> str:
    return f"_arguments {flags} " + " ".join(f"\\\n        {each}" for each in specs)


def _spec(option: Option) -> str:
    """Return the specification of an option in the language of `_arguments`."""
    names = option.names
    joined = names[0] if len(names) == 1 else "{" + ",".join(names) + "}"
    if option.value is not None:
        joined = ",".join(f"{each}=" for each in names)
        joined = joined if len(names) == 1 else "{" + joined + "}"
    repeats = "*" if option.may_repeat else f"({' '.join(names)})"
    text = f"[{_escaped(option.text)}]"
    if option.value is not None:
        text += f":{_escaped(option.value.name)}:{_action(option.value)}"
    return f"'{repeats}'{joined}'{text}'"


def _action(value: Value) -> str:
    if value.kind is Kind.CHOICE:
        return f"({' '.join(value.choices)})"
    return _ACTIONS[value.kind]


def _escaped(text: str) -> str:
    """Escape what means something to `_arguments`, and quotes."""
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, f"\\{special}")
    return _quoted(text)


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")
