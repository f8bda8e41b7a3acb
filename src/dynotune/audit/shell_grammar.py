"""Shell text to a tree, by tree-sitter's grammar of bash.

The grammar's scanner ended the process at some text with characters outside of ASCII (tree-sitter-bash 0.25.1,
`<{\\U0010ffff[`). It is given a letter for each byte that is no ASCII, which leaves every offset as it is; what a node says
is cut from the true source.
"""

from collections.abc import Collection, Iterator

import tree_sitter
import tree_sitter_bash

_LANGUAGE = tree_sitter.Language(tree_sitter_bash.language())
_LETTERS = bytes(byte if byte < 128 else ord("x") for byte in range(256))


def parse_shell(source: bytes) -> tree_sitter.Node:
    """The root. Offsets, rows and columns (in bytes) are those of `source`; `node.text` is not: use `text_of`."""
    return tree_sitter.Parser(_LANGUAGE).parse(source.translate(_LETTERS)).root_node


def nodes(root: tree_sitter.Node, closed: Collection[str] = ()) -> Iterator[tree_sitter.Node]:
    """A tree's nodes, in no order that means something. closed: types of nodes in which nothing is looked at."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.type not in closed:
            waiting += node.children


def text_of(node: tree_sitter.Node, source: bytes) -> str:
    """What stands there. source: as it was parsed."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
