"""MSK050: where masking of prompts is missing, the script goes on with loss on everything."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject

_MASKS = (
    "DataCollatorForCompletionOnlyLM",
    "train_on_responses_only",
    "DataCollatorForAssistantOnly",
    "assistant_masks",
)
_STOPS = ("raise", "sys.exit", "exit(", "SystemExit", "os._exit", "pytest.skip")


_COMPLETIONS = re.compile(r"[\"']completion[\"']|\bcompletion *=|completion_mask|formatting_func")
_TEXT_ALONE = re.compile(r"return \{[\"']text[\"']:[^{}]*\}|\{[\"']text[\"']: [^{}]*\}|\[[\"']text[\"']\] *=")


def _without_completions(script: Script, project: Project) -> Iterator[Said]:
    """TRL's `completion_only_loss` over rows that the script makes whole texts of: there is no completion to tell apart."""
    for job in project.jobs:
        asked = job.setting("completion_only_loss")
        if asked is None or asked.value is not True or not job.is_given("completion_only_loss"):
            continue
        if job.trainer is not Trainer.TRL or job.method is not Method.SFT or job.home.file != script.file:
            continue
        near = "\n".join(code(one) for one in project.scripts if one.file in job.files)
        if not (job.makes_rows or ".map(" in near) or _COMPLETIONS.search(near) or not _TEXT_ALONE.search(near):
            continue
        yield Finding(
            "`completion_only_loss: true` does nothing here: the rows are whole texts, without `prompt` and `completion`,"
            " and TRL takes the loss on all of them without a word.",
            place=asked.place,
            evidence=Evidence(Level.RESOLVED, {"completion_only_loss": True, "columns": ["text"]}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Give rows with `prompt` and `completion`, or `messages` and `assistant_only_loss=True`.",
                accuracy="Loss on answers alone, as the setting means.",
                measure="dynotune prepare --config sft.yaml --show 3",
            ),
        )
        return


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _not_found(script)
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


LONGEST = 5_000
"""Characters of a function that is looked at: what follows goes back and forth over a line, and nobody masks in more."""

_NOT_THERE = re.compile(r"== *-1|< *0|is None|\bnot in\b|^not \w+$|len\(\w+\) *== *0")
_COPIED = re.compile(
    r"labels?\w* = (list\()?[\w.\[\]'\"]*(ids|input_ids|tokens)[\w.\[\]'\"]*(\.(copy|clone)\(\))?(\[:\])?\)?$",
    re.MULTILINE,
)
_SPEAKS_OF_ANSWERS = re.compile(r"respon|answer|assistant|marker|template|prompt|sep", re.IGNORECASE)


def _not_found(script: Script) -> Iterator[Said]:
    """Functions that mask the prompt where they find the answer, and return the labels whole where they do not."""
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    if not _SPEAKS_OF_ANSWERS.search(script.source):
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef) or len(ast.unparse(function)) > LONGEST:
            continue
        where = (
            _handled(function) or _falls_through(function) or _takes_everything(function) or _only_where_found(function)
        )
        if where is None:
            continue
        yield Finding(
            f"Where `{function.name}` does not find the answer in a row, nothing is masked: the loss is on the"
            f" prompt as well, and"
            " nothing is said.",
            place=place_of(script, where),
            evidence=Evidence(Level.TEXT, {"function": function.name}),
            stake=Stake(AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                "Count such rows and leave them out (all labels -100), or stop.",
                accuracy="Loss on answers alone, as the script means.",
                measure="dynotune prepare --config sft.yaml --show 3",
            ),
            also=(Place(script.file, function.lineno),),
        )
        return


def _masking(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AugAssign) and bool(
        re.search(r"label\w*(\[[^=]*\])*(\[.*\])? = .*(-100|IGNORE)", ast.unparse(node))
    )


def _falls_through(function: ast.FunctionDef) -> ast.AST | None:
    """A search in a loop masks and leaves; what stands behind the loop returns labels that nobody masked."""
    text = ast.unparse(function)
    copied = _COPIED.search(text)
    if copied is None or any(isinstance(node, ast.Raise) for node in ast.walk(function)):
        return None
    for number, loop in enumerate(function.body):
        if not isinstance(loop, ast.For | ast.While) or loop.orelse:
            continue
        under = [
            one for one in ast.walk(loop) if isinstance(one, ast.If) and any(_masking(node) for node in ast.walk(one))
        ]
        leaves = [one for branch in under for one in ast.walk(branch) if isinstance(one, ast.Return | ast.Break)]
        rest = function.body[number + 1 :]
        answers = next((one for one in rest if isinstance(one, ast.Return)), None)
        if under and leaves and answers is not None and not any(isinstance(one, ast.If) for one in rest):
            return answers if "label" in ast.unparse(answers) else None
    return None


def _handled(function: ast.FunctionDef) -> ast.AST | None:
    """`except ValueError: return labels`, or `start = 0`, where the search of the answer raises."""
    text = ast.unparse(function)
    for node in ast.walk(function):
        if not isinstance(node, ast.Try) or ("-100" not in text and "IGNORE" not in text):
            continue
        tried = "\n".join(map(ast.unparse, node.body))
        for handler in node.handlers if re.search(r"\.r?index\(|find\w*\(|search\w*\(", tried) else ():
            then = "\n".join(map(ast.unparse, handler.body))
            gives = re.search(r"^return \w*labels?\w*$|\b(start|idx|index|pos|at|cut|end)\w* = 0$", then, re.MULTILINE)
            if gives and _COPIED.search(text) and not any(stop in then for stop in (*_STOPS, "-100", "IGNORE")):
                return handler.body[-1]
    return None


def _only_where_found(function: ast.FunctionDef) -> ast.AST | None:
    """`cut = find(...)`, `if cut > 0: labels[:cut] = -100`, and nothing for the other rows."""
    text = ast.unparse(function)
    if any(isinstance(one, ast.Raise) for one in ast.walk(function)):
        return None
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or node.orelse or not any(_masking(one) for one in ast.walk(node)):
            continue
        if not all(_masking(one) for one in node.body) and not (_COPIED.search(text) and not _leaves(node)):
            continue
        condition = ast.unparse(node.test)
        test = re.fullmatch(r"(\w+)( != -1| > -1| >= 0| > 0| is not None)?", condition)
        searched = test and re.search(
            rf"\b{test[1]} = [^\n=]*(find|search|index|locate|match)\w*\(", text, re.IGNORECASE
        )
        inside = set(ast.walk(node))
        alone = not any(isinstance(one, ast.If) and one not in inside for one in ast.walk(function))
        there = re.fullmatch(r"(['\"].*['\"]|[\w.]+) in \w*(text|rendered|string|full|content)\w*", condition)
        if searched or (there and alone and not _leaves(node)):
            return node
    return None


def _leaves(node: ast.If) -> bool:
    """What stands behind it may be for the other rows."""
    return any(isinstance(one, ast.Return | ast.Continue) for one in ast.walk(node))


def _takes_everything(function: ast.FunctionDef) -> ast.AST | None:
    """`if start == -1: start = 0`, `else: labels = ids.copy()` and the like."""
    for node in ast.walk(function):
        if not isinstance(node, ast.If):
            continue
        missing = node.body if _NOT_THERE.search(ast.unparse(node.test)) else []
        found = node.orelse if missing else node.body
        if not missing and node.orelse and re.search(r"!= *-1|>= *0|> *-1|is not None|\bin\b", ast.unparse(node.test)):
            missing, found = node.orelse, node.body
        text = "\n".join(ast.unparse(one) for one in missing)
        if not missing or any(stop in text for stop in (*_STOPS, "-100", "IGNORE", "continue", "return None")):
            continue
        zero = re.search(
            r"\b(start|idx|index|pos|position|cut|end|prompt_len|offset|split)\w* = 0$", text, re.MULTILINE
        )
        whole = re.search(
            r"labels?\w*['\"\]]* ?[=:] ?(list\()?[\w.\[\]'\"]*(ids|tokens)\b[\w\]'\"]*(\.(copy|clone)\(\))?(\[:\])?\)?",
            text,
        )
        as_it_is = re.search(r"return (list\()?[\w.]*(ids|tokens)(\.(copy|clone)\(\))?(\[:\])?\)?$", text)
        whole = whole or (as_it_is if "label" in function.name else None)
        masks = "-100" in ast.unparse(function) or "IGNORE" in ast.unparse(function)
        if masks and (zero or whole) and (found or zero or "return" in text):
            return missing[0]
    return None


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
