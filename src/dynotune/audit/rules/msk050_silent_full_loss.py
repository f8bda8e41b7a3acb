"""MSK050: where masking of prompts is missing, the script goes on with loss on everything."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, imported
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.labels_left_whole import STOPS, left_whole
from dynotune.audit.shapes.mark_that_a_table_lacks import mark_that_a_table_lacks
from dynotune.audit.shapes.masking_of_trl import way_to_answers
from dynotune.audit.shapes.masks_that_do_not_last import masks_that_do_not_last
from dynotune.audit.shapes.starts_that_are_zero import masked_up_to, zero_where_not_found

_MASKS = (
    "DataCollatorForCompletionOnlyLM",
    "train_on_responses_only",
    "DataCollatorForAssistantOnly",
    "assistant_masks",
)


_COMPLETIONS = re.compile(r"[\"']completion[\"']|\bcompletion *=|completion_mask|formatting_func")
_TEXT_ALONE = re.compile(r"return \{[\"']text[\"']:[^{}]*\}|\{[\"']text[\"']: [^{}]*\}|\[[\"']text[\"']\] *=")


def _without_completions(script: Script, project: Project) -> Iterator[Said]:
    """TRL's `completion_only_loss` over rows that the script makes whole texts of: there is no completion to tell apart."""
    for job in project.jobs:
        key = next((one for one in ("completion_only_loss", "assistant_only_loss") if job.get(one) is True), "")
        asked = job.setting(key)
        if asked is None or not job.is_given(key):
            continue
        if job.trainer is not Trainer.TRL or job.method is not Method.SFT or job.home.file != script.file:
            continue
        near = "\n".join(code(one) for one in project.scripts if one.file in job.files)
        if not (job.makes_rows or ".map(" in near) or _COMPLETIONS.search(near) or not _TEXT_ALONE.search(near):
            continue
        stops = key == "assistant_only_loss"
        yield Finding(
            f"`{key}: true` "
            + (
                "is for rows of messages, and the rows are whole texts: TRL raises an error when the trainer is made."
                if stops
                else "does nothing here: the rows are whole texts, without `prompt` and `completion`, and TRL takes the loss"
                " on all of them without a word."
            ),
            place=asked.place,
            evidence=Evidence(Level.RESOLVED, {key: True, "columns": ["text"]}),
            stake=Stake(AtStake.STOPS if stops else AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"{way_to_answers(project)}.",
                accuracy="Loss on answers alone, as the setting means.",
                measure="Print the labels of one row that are not -100.",
            ),
        )
        return


def check(script: Script, project: Project) -> Iterator[Said]:
    found = list(_not_found(script))
    yield from found or _zero_start(script, project)
    yield from masks_that_do_not_last(script, project)
    yield from mark_that_a_table_lacks(script, project)
    if "SFT" in script.source:
        yield from _without_completions(script, project)
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
                if any(stop in after for stop in STOPS) or any(other in after for other in _MASKS if other != name):
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
                        "Let it fail: stop the run there, with the error.",
                        accuracy="Loss on answers alone, as the script means.",
                        measure="Print the labels of one row that are not -100.",
                    ),
                )
                return


_SPEAKS_OF_ANSWERS = re.compile(r"respon|answer|assistant|marker|template|prompt|sep|pattern", re.IGNORECASE)


_SPEAKS = re.compile(r"\b(?:print|warn|warning|info|error|debug)\(")


def _not_found(script: Script) -> Iterator[Said]:
    """Functions that mask the prompt where they find the answer, and return the labels whole where they do not."""
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    if not _SPEAKS_OF_ANSWERS.search(script.source):
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        where = left_whole(function)
        if where is None:
            continue
        silent = "" if _SPEAKS.search(ast.unparse(function)) else ", and nothing is said"
        yield Finding(
            f"Where `{function.name}` does not find the answer in a row, nothing is masked: the loss is on the"
            f" prompt as well{silent}.",
            place=place_of(script, where),
            evidence=Evidence(Level.TEXT, {"function": function.name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Count such rows and leave them out (all labels -100), or stop.",
                accuracy="Loss on answers alone, as the script means.",
                measure="Print the labels of one row that are not -100.",
            ),
            also=(Place(script.file, function.lineno),),
        )
        return


def _zero_start(script: Script, project: Project) -> Iterator[Said]:
    """A search that hands back 0 where it finds no answer, and a caller that masks what stands before that."""
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    homes = {one.file: one for one in (script, *imported(script, project))}
    searches = {
        node.name: (one, node)
        for one in homes.values()
        for node in ast.walk(one.tree)
        if isinstance(node, ast.FunctionDef)
    }
    for function in [node for node in ast.walk(script.tree) if isinstance(node, ast.FunctionDef)]:
        for name, call in masked_up_to(function):
            home, search = searches.get(name, (script, function))
            where = zero_where_not_found(search) if search is not function else None
            if where is None:
                continue
            yield Finding(
                f"Where `{name}` does not find the answer in a row (cut off, or another mark), it gives 0 without a word,"
                f" and `{function.name}` then masks nothing: the loss is on the prompt as well.",
                place=place_of(home, where),
                evidence=Evidence(Level.TEXT, {"search": name, "masks": function.name}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Give the row's length there (all labels -100), or leave the row out; count such rows.",
                    accuracy="Loss on answers alone, as the script means.",
                    measure="Print the labels of one row that are not -100.",
                ),
                also=(place_of(script, call),),
            )
            return


_OTHERWISE_MASKED = re.compile(r"complet|respon|answer|assist|mask|prompt", re.IGNORECASE)


def _gives_up(handler: ast.ExceptHandler, node: ast.Try, name: str, script: Script) -> bool:
    """The handler replaces the collator by another or by nothing, or passes; and of an import, the name is used under a
    condition rather than left to fail."""
    imports = any(isinstance(statement, (ast.ImportFrom, ast.Import)) for statement in node.body)
    applies = any(isinstance(one, ast.Assign) and name in ast.unparse(one.value) for one in node.body)
    for statement in handler.body:
        if isinstance(statement, ast.Return):
            value = ast.unparse(statement.value) if statement.value is not None else ""
            returns = any(isinstance(one, ast.Return) and name in ast.unparse(one) for one in node.body)
            if re.search(r"\w+Collator\w*\(|\bcollate\w*\b|\bdefault_data_collator\b", value):
                return not _OTHERWISE_MASKED.search(value)
            return returns and value in ("", "None")
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
    return passes and (applies or not imports)


def _stops_without(target: str, script: Script) -> bool:
    """A later test of what the handler set to nothing raises or leaves, or masks in another way."""
    for one in ast.walk(script.tree):
        if isinstance(one, ast.Assert | ast.If) and target in ast.unparse(one.test):
            text = ast.unparse(one)
            if isinstance(one, ast.Assert) or any(word in text for word in (*STOPS, *_MASKS)):
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
        " prints; or a function that masks leaves a row's labels whole where it finds no answer, or"
        " a mark out of a table by `.get`, where the table lacks it, and"
        " a search that gives 0 then, to a function that masks up to it. Handlers and branches that"
        " stop, and those that mask in another way, are not reported. `DataCollatorForLanguageModeling` over rows that"
        " have masked labels, and prompts that are counted from the start of rows padded on the left.",
        proven="Print how many labels of a batch are not -100.",
        deliberate=("Loss on everything is wanted where there are no answers to tell.",),
        sources=("TRL 0.20's release notes: `DataCollatorForCompletionOnlyLM` is gone",),
    ),
    bad=Example({"train.py": _SCRIPT % _BAD}, says="goes on without it"),
    good=Example({"train.py": _SCRIPT % _GOOD}),
)
