"""The recipes of a Makefile as shell text, with the line that each row stands on."""

import re

from dynotune.audit.lines import lines_of

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*(\?=|:=|::=|=|\+=)\s*(.*)$")
_RULE = re.compile(r"^([^\s:=#][^:=#]*?)\s*::?(?!=)([^=]*)$")
_VARIABLE = re.compile(r"\$[({]([A-Za-z_]\w*)[)}]")


def recipes(text: str) -> tuple[str, dict[int, int]]:
    """Shell text, and the line of the Makefile for each of its rows (from 0)."""
    rows: list[str] = []
    lines: dict[int, int] = {}
    going_on = in_value = False
    for number, line in enumerate(lines_of(text), 1):
        if in_value:
            # A value of several lines stands on its first one: a shell's quotes would keep the ends of lines.
            value = _VARIABLE.sub(r"${\1}", line.strip()).replace('"', '\\"')
            in_value = value.endswith("\\")
            rows[-1] = f'{rows[-1][:-1].rstrip()} {value.rstrip(chr(92)).rstrip()}"'
            continue
        if line.startswith("\t") or (going_on and rows):
            row = _VARIABLE.sub(r"${\1}", line.replace("$$", "\x00")).replace("\x00", "$")
            row = row.strip().lstrip("@-+") if not going_on else row.strip()
        elif found := _ASSIGNMENT.match(line):
            name, operator, value = found[1], found[2], _VARIABLE.sub(r"${\1}", found[3].partition(" #")[0].strip())
            quoted = value.rstrip("\\").replace('"', '\\"')
            shown = "export " if line.lstrip().startswith("export ") and operator != "+=" else ""
            row = f'{shown}{name}{"+=" if operator == "+=" else "="}"{quoted}"'
            in_value = value.endswith("\\")
        else:
            going_on = False
            continue
        lines[len(rows)] = number
        rows.append(row)
        going_on = line.endswith("\\") and not in_value
    return "\n".join(rows) + "\n", lines


def rows_of_goals(text: str, goals: tuple[str, ...]) -> frozenset[int]:
    """Lines (from 1) of the recipes that `make` with these goals runs: their own, and those of what they need first."""
    needs: dict[str, list[str]] = {}
    rows: dict[str, list[int]] = {}
    targets: list[str] = []
    first = ""
    for number, line in enumerate(lines_of(text), 1):
        if line.startswith("\t"):
            for target in targets:
                rows[target].append(number)
        elif (found := _RULE.match(line)) and not _ASSIGNMENT.match(line):
            targets = found[1].split()
            for target in targets:
                needs.setdefault(target, []).extend(found[2].partition("#")[0].split())
                rows.setdefault(target, [])
            first = first or next((target for target in targets if not target.startswith(".")), "")
    wanted, seen = list(goals or (first,)), set[str]()
    while wanted:
        target = wanted.pop()
        if target not in seen:
            seen.add(target)
            wanted += needs.get(target, [])
    return frozenset(row for target in seen for row in rows.get(target, []))
