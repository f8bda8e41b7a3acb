"""MSK050: where masking of prompts is missing, the script goes on with loss on everything."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_MASKS = (
    "DataCollatorForCompletionOnlyLM",
    "train_on_responses_only",
    "DataCollatorForAssistantOnly",
    "assistant_masks",
)
_STOPS = ("raise", "sys.exit", "exit(", "SystemExit", "os._exit", "pytest.skip")


def check(script: Script, project: Project) -> Iterator[Said]:
    if not any(name in script.source for name in _MASKS):
        return
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Try):
            tried = "\n".join(ast.unparse(statement) for statement in node.body)
            name = next((name for name in _MASKS if name in tried), None)
            if name is None:
                continue
            for handler in node.handlers:
                after = "\n".join(ast.unparse(statement) for statement in handler.body)
                if any(stop in after for stop in _STOPS) or any(other in after for other in _MASKS if other != name):
                    continue
                if not _gives_up(handler, node, name, script):
                    continue
                yield Finding(
                    f"Where `{name}` fails, the script goes on without it: the loss is on prompts as well, and"
                    f" nothing stops.",
                    place=place_of(script, handler),
                    evidence=Evidence(Level.TEXT, {"masking": name, "handler": after.splitlines()[0] if after else ""}),
                    stake=Stake(AtStake.RESULT),
                    remedy=Remedy(
                        Risk.BEHAVIOURAL,
                        "Let it fail. In TRL from 0.20 on: rows with `prompt` and `completion`, or"
                        " `assistant_only_loss=True`.",
                        accuracy="Loss on answers alone, as the script means.",
                        measure="dynotune prepare --config sft.yaml --show 3",
                    ),
                )
                return


def _gives_up(handler: ast.ExceptHandler, node: ast.Try, name: str, script: Script) -> bool:
    """The handler replaces the collator by another or by nothing, or passes; and of an import, the name is used under a
    condition rather than left to fail."""
    imports = any(isinstance(statement, (ast.ImportFrom, ast.Import)) for statement in node.body)
    for statement in handler.body:
        if isinstance(statement, ast.Assign):
            value = ast.unparse(statement.value)
            target = ast.unparse(statement.targets[0])
            if value == "None" and any(
                isinstance(one, ast.Assign)
                and target in map(ast.unparse, one.targets)
                and name in ast.unparse(one.value)
                for one in node.body
            ):
                return not _stops_without(target, script)
            if imports and value in ("None", "False"):
                return any(
                    isinstance(one, (ast.If, ast.IfExp)) and ast.unparse(statement.targets[0]) in ast.unparse(one.test)
                    for one in ast.walk(script.tree)
                )
            if "Collator" in value or (value == "None" and not imports):
                return True
    passes = all(isinstance(one, ast.Pass) or _only_speaks(one) for one in handler.body)
    return passes and not imports


def _stops_without(target: str, script: Script) -> bool:
    """A later test of what the handler set to nothing raises or leaves, or masks in another way."""
    for one in ast.walk(script.tree):
        if isinstance(one, ast.Assert | ast.If) and target in ast.unparse(one.test):
            text = ast.unparse(one)
            if isinstance(one, ast.Assert) or any(word in text for word in (*_STOPS, *_MASKS)):
                return True
    return False


def _only_speaks(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return ast.unparse(node.value.func).startswith(("print", "log", "warn"))


_SCRIPT = """from transformers import DataCollatorForLanguageModeling
from trl import DataCollatorForCompletionOnlyLM, SFTTrainer

%s
trainer = SFTTrainer(model, data_collator=collator, train_dataset=rows)
"""
_BAD = """try:
    collator = DataCollatorForCompletionOnlyLM("### Answer:", tokenizer=tokenizer)
except Exception:
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)"""
_GOOD = 'collator = DataCollatorForCompletionOnlyLM("### Answer:", tokenizer=tokenizer)'
RULE = Rule(
    code="MSK050",
    name="silent-full-loss",
    summary="A fall-back trains on prompts where masking them fails.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="The collator that masks prompts has moved and gone between releases. A script that catches its"
        " absence and takes a"
        " plain one trains on everything.",
        why="The run succeeds, its loss even looks better, and the model has learned to write questions.",
        detected="E0: a `try` makes or applies the masking, and a handler replaces it by a plain collator, by"
        " nothing, or only"
        " prints. Handlers that stop, and those that mask in another way, are not reported.",
        proven="Print how many labels of a batch are not -100.",
        deliberate=("Loss on everything is wanted where there are no answers to tell.",),
        sources=("TRL 0.20's release notes: `DataCollatorForCompletionOnlyLM` is gone",),
    ),
    bad=Example({"train.py": _SCRIPT % _BAD}, says="goes on without it"),
    good=Example({"train.py": _SCRIPT % _GOOD}),
)
