"""The recipes of a Makefile as shell text, with the line that each row stands on."""

import re

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*(\?=|:=|::=|=|\+=)\s*(.*)$")
_VARIABLE = re.compile(r"\$[({]([A-Za-z_]\w*)[)}]")


def recipes(text: str) -> tuple[str, dict[int, int]]:
    """Shell text, and the line of the Makefile for each of its rows (from 0)."""
    rows: list[str] = []
    lines: dict[int, int] = {}
    going_on = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("\t") or (going_on and rows):
            row = _VARIABLE.sub(r"${\1}", line.replace("$$", "\x00")).replace("\x00", "$")
            row = row.strip().lstrip("@-+") if not going_on else row.strip()
        elif found := _ASSIGNMENT.match(line):
            name, operator, value = found[1], found[2], _VARIABLE.sub(r"${\1}", found[3].partition(" #")[0].strip())
            quoted = value.rstrip("\\").replace('"', '\\"')
            row = f'{name}{"+=" if operator == "+=" else "="}"{quoted}"'
            if value.endswith("\\"):
                row = row[:-1] + " \\"
        else:
            going_on = False
            continue
        lines[len(rows)] = number
        rows.append(row)
        going_on = line.endswith("\\")
    return "\n".join(rows) + "\n", lines
