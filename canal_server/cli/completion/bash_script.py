"""The script for bash 4.2 and later; it needs no package of completions."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from canal_server.cli.completion.completion_tree import Kind

if TYPE_CHECKING:
    from canal_server.cli.completion.completion_tree import Command, Value

_SCRIPT = """\
# bash completion of canal-server, printed by `canal-server completion bash`

# The words that may follow a command.
__canal_server_words() {{
    case "$1" in
{words}
    esac
}}

# What the value of a command's option is; fails for a switch.
__canal_server_value() {{
    case "$1 $2" in
{values}
    *) return 1 ;;
    esac
}}

# What the arguments of a command are.
__canal_server_argument() {{
    case "$1" in
{arguments}
    *) echo unknown ;;
    esac
}}

# The destinations in the conf folder of the command line.
__canal_server_destinations() {{
    local conf=${{CANAL_CONF:-conf}} i each
    for ((i = 1; i < COMP_CWORD - 1; i++)); do
        if [[ ${{COMP_WORDS[i]}} == --conf ]]; then
            conf=${{COMP_WORDS[i + 1]}}
            [[ $conf != = ]] || conf=${{COMP_WORDS[i + 2]}}
        fi
    done
    for each in "${{conf/#\\~/$HOME}}"/*/instance.properties; do
        [[ ! -e $each ]] || basename "$(dirname "$each")"
    done
}}

_canal_server() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
    local command= last= word kind i
    # Bash makes three words of `--option=value`.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $before == = ]]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        if [[ $word == = ]]; then
            continue
        elif [[ $last ]] && __canal_server_value "$command" "$last" >/dev/null; then
            last=
        elif [[ $word == -* ]]; then
            last=$word
        elif [[ " $(__canal_server_words "$command" | tr '\\n' ' ') " == *" $word "* ]]
        then
            command="$command $word" last=
        fi
    done
    COMPREPLY=()
    if [[ $before == -* ]] && kind=$(__canal_server_value "$command" "$before"); then
        :
    elif [[ $cur == -* ]]; then
        kind=options
    else
        kind=$(__canal_server_argument "$command")
    fi
    case "$kind" in
    folder) compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    file) compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    destination)
        mapfile -t COMPREPLY < <(compgen -W "$(__canal_server_destinations)" -- "$cur")
        ;;
    options | commands)
        mapfile -t COMPREPLY < <(compgen -W "$(__canal_server_words "$command")" \\
            -- "$cur") ;;
    choice\\ *) mapfile -t COMPREPLY < <(compgen -W "${{kind#choice }}" -- "$cur") ;;
    esac
}}

complete -F _canal_server canal-server
"""


def bash_script(program: Command) -> str:
    """Return the script."""
    words, values, arguments = [], [], []
    for command in program.all():
        name = _quoted("".join(f" {word}" for word in command.words))
        names = [each.words[-1] for each in command.actions]
        names += [each for option in command.options for each in option.names]
        words.append(f"    {name}) printf '%s\\n' {shlex.join(names)} ;;")
        for option in command.options:
            if option.value is not None:
                pattern = "|".join(f"{name}' {each}'" for each in option.names)
                values.append(f"    {pattern}) {_echo(option.value)} ;;")
        if command.actions:
            arguments.append(f"    {name}) echo commands ;;")
        elif command.arguments:
            arguments.append(f"    {name}) {_echo(command.arguments[-1])} ;;")
    return _SCRIPT.format(
        words="\n".join(words),
        values="\n".join(values),
        arguments="\n".join(arguments),
    )


def _quoted(text: str) -> str:
    return f"'{text}'"


def _echo(value: Value) -> str:
    text = " ".join((value.kind.value, *value.choices))
    return f"echo {_quoted(text) if value.kind is Kind.CHOICE else text}"
