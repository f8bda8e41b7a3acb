"""Statements that take tokens of images and the like out of the loss, which says nothing of padding."""

import ast
import re

from dynotune.audit.facts.script import Script

_OTHER = re.compile(r"image|vision|video|audio|\bimg|speech|<\|?(?:fim|tool)", re.IGNORECASE)
_STATEMENT = re.compile(
    r"^[^\n=]*label\w*[^\n]*==\s*(?P<token>[\w.]+)\s*\]\s*=\s*(?:-100|\w*IGNORE\w*)[^\n]*$", re.MULTILINE
)


def without_other_tokens(code: str, script: Script) -> str:
    """The code without `labels[labels == image_token_id] = -100`, also in a loop over such tokens."""
    return _STATEMENT.sub(lambda found: "" if _is_of_others(found["token"], script) else found[0], code)


def _is_of_others(token: str, script: Script) -> bool:
    if _OTHER.search(token):
        return True
    for node in ast.walk(script.tree):
        if isinstance(node, ast.For) and ast.unparse(node.target) == token:
            words = _words(node.iter, script, 0)
            return bool(words) and all(_OTHER.search(word) for word in words)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == token:
            words = _words(node.value, script, 0)
            return bool(words) and all(_OTHER.search(word) for word in words)
    return False


def _words(node: ast.expr, script: Script, depth: int) -> list[str]:
    """Texts in an expression, and in what its names are given; what is not known stands for itself."""
    found = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and one.attr.endswith(("_token", "_token_id")):
            found.append(one.attr)
        elif isinstance(one, ast.Name) and depth < 3:
            for given in ast.walk(script.tree):
                if not isinstance(given, ast.Assign) or ast.unparse(given.targets[0]) != one.id:
                    continue
                if not isinstance(given.value, ast.Call) or "from_pretrained" not in ast.unparse(given.value):
                    found += _words(given.value, script, depth + 1)
    return found
