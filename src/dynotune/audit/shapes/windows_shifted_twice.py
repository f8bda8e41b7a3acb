"""Windows of a stream and the same windows a token later, given to a model that shifts labels itself."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rooms import own_nodes
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

CAUSAL = re.compile(r"ForCausalLM\b|LMHeadModel\b")
OWN_LOSS = re.compile(
    r"cross_entropy|CrossEntropyLoss|nll_loss|compute_loss|log_softmax|shift_labels|class \w+\([\w.]*Module\)"
)
_WINDOW = re.compile(r"\b(?P<of>(?:self\.)?\w+)\[(?P<at>\w+):")
_LATER = re.compile(r"\b(?P<of>(?:self\.)?\w+)\[(?P<at>\w+) \+ 1:")
_IDS, _LABELS = "input_ids", "labels"


def windows_shifted_twice(script: Script, project: Project) -> Iterator[Said]:
    """`data[i:i + T]` and `data[i + 1:i + 1 + T]` as `input_ids` and `labels` of a model of transformers."""
    if "+1" not in script.source.replace(" ", "") or "labels" not in "".join(one.source for one in project.scripts):
        return
    program = connected(script, project)
    sources = [code(one) for one in program]
    if not any(CAUSAL.search(one) for one in sources) or any(OWN_LOSS.search(one) for one in sources):
        return
    rooms: list[ast.AST] = [script.tree, *(one for one in ast.walk(script.tree) if isinstance(one, ast.FunctionDef))]
    for room in rooms:
        given = _given(room)
        for node in own_nodes(room):
            if isinstance(node, ast.Dict) and _later(_by_key(node), given):
                yield _finding(script, _followed(_by_key(node)[_LABELS], given))
                return
            if isinstance(node, ast.Call) and "model" in ast.unparse(node.func) and _later(_by_word(node), given):
                yield _finding(script, _followed(_by_word(node)[_LABELS], given))
                return
    for room in rooms:
        if isinstance(room, ast.FunctionDef) and (made := _returned(room)) is not None:
            for one in program:
                if _handed_on(one, room.name):
                    yield _finding(script, made)
                    return


def _given(room: ast.AST) -> Mapping[str, ast.expr]:
    """Names of one value, also side by side."""
    found: dict[str, list[ast.expr]] = {}
    for node in own_nodes(room):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for held, one in pairs:
                if isinstance(held, ast.Name) and not _speaks_of(held.id, one):  # `x = x.cuda()` changes nothing of it
                    found.setdefault(held.id, []).append(one)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _speaks_of(name: str, value: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(value))


def _by_key(node: ast.Dict) -> Mapping[str, ast.expr]:
    return {
        str(key.value): value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _by_word(node: ast.Call) -> Mapping[str, ast.expr]:
    named = {word.arg: word.value for word in node.keywords if word.arg}
    return {_IDS: node.args[0], **named} if node.args else named


def _later(pairs: Mapping[str, ast.expr], given: Mapping[str, ast.expr]) -> bool:
    return _IDS in pairs and _LABELS in pairs and _is_later(pairs[_IDS], pairs[_LABELS], given)


def _is_later(first: ast.expr, second: ast.expr, given: Mapping[str, ast.expr]) -> bool:
    window, later = (ast.unparse(_followed(one, given)) for one in (first, second))
    one, other = _WINDOW.search(window), _LATER.search(later)
    return one is not None and other is not None and (one["of"], one["at"]) == (other["of"], other["at"])


def _followed(node: ast.expr, given: Mapping[str, ast.expr]) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        if node.func.attr not in ("cuda", "to", "long", "clone", "pin_memory"):
            break
        node = node.func.value
    return given.get(node.id, node) if isinstance(node, ast.Name) else node


def _returned(room: ast.FunctionDef) -> ast.expr | None:
    """The second of two windows that a function returns."""
    given = _given(room)
    for node in own_nodes(room):
        parts: Sequence[ast.expr] = (
            node.value.elts if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) else ()
        )
        if len(parts) == 2 and _is_later(parts[0], parts[1], given):
            return given.get(parts[1].id, parts[1]) if isinstance(parts[1], ast.Name) else parts[1]
    return None


def _handed_on(script: Script, function: str) -> bool:
    """`x, y = get_batch(...)`, or a loop over a loader, and `model(x, labels=y)`."""
    text = ast.unparse(script.tree)
    for node in ast.walk(script.tree):
        if not isinstance(node, ast.Call) or "model" not in ast.unparse(node.func):
            continue
        words = _by_word(node)
        if not isinstance(words.get(_IDS), ast.Name) or not isinstance(words.get(_LABELS), ast.Name):
            continue
        x, y = ast.unparse(words[_IDS]), ast.unparse(words[_LABELS])
        made = rf"{x}, {y} = {re.escape(function)}\("
        if re.search(made, text) or (
            function == "__getitem__" and re.search(rf"for (?:\w+, )?\(?{x}, {y}\)? in ", text)
        ):
            return True
    return False


def _finding(script: Script, labels: ast.expr) -> Finding:
    return Finding(
        f"Labels are the window a token later (`{ast.unparse(labels)[:60]}`), and the model shifts labels by one itself: it"
        " learns to predict the token after the next.",
        place=place_of(script, labels),
        evidence=Evidence(Level.TEXT, {"labels": ast.unparse(labels)[:120]}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Give the model the input itself as labels, or compute the loss from the logits.",
            effort=Effort.LINE,
            accuracy="The next token is learned.",
            measure="Compare the loss of a trained model on one batch: it is several times too high.",
        ),
    )
