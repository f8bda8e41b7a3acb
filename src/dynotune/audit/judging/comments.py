"""Comments of files by line, without their mark: what stands within a string or a here-document is none."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from dynotune.audit.facts.launch import SHELL
from dynotune.audit.lines import lines_of

_COMMENT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:(?<=\s)|^)#(?P<comment>.*)$")


def comments_of(file: str, text: str) -> Mapping[int, str]:
    """Of a file that no reader of configurations or of Python has read."""
    if PurePosixPath(file).suffix.lower() in SHELL or text.startswith("#!"):
        return _of_shell(text)
    found = {}
    for number, line in enumerate(lines_of(text), 1):
        for match in _COMMENT.finditer(line):
            if match["comment"] is not None:
                found[number] = match["comment"]
    return found


def _of_shell(text: str) -> dict[int, str]:
    from dynotune.audit.shell_grammar import nodes, parse_shell, text_of

    source = text.encode("utf-8", "surrogatepass")
    comments = (node for node in nodes(parse_shell(source)) if node.type == "comment")
    return {node.start_point.row + 1: text_of(node, source).removeprefix("#").rstrip("\r") for node in comments}
