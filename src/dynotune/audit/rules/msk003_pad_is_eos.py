"""MSK003: padding is the end token, and a collator masks every padding token: the end is never learned."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rendered_text import rendered_texts
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import place_of, text_at
from dynotune.audit.facts.together import together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.pad_named_as_end import pad_named_as_end

PAD_IS_EOS = re.compile(
    r"^[^#\n]*(?:\.pad_token(?:_id)?\s*=|[\"']pad_token[\"']\s*[:,])\s*[\w.]+\.eos_token(?:_id)?\b", re.MULTILINE
)
_PAD = r"==\s*((self\.)?\w*tok\w*\.pad_token_id|(self\.)?(pad|pad_?(token)?_?(id|idx|index)))\b"
"""By the tokenizer's name for it, or by one that was made of it."""

_OUT = r"(-100|\w*IGNORE\w*)"
_MASKED = re.compile(
    rf"\w*labels?\w*(\['labels'\])?\[.*{_PAD}\] = {_OUT}|"
    rf"labels?\w*(['\"]\])? = .*\.masked_fill\(.*{_PAD}, {_OUT}\)|"
    rf"labels?\w*(['\"]\])? = .*where\(.*{_PAD}, ([\w.]+\(\w+, )?{_OUT}\)?, |"
    rf"labels?\w*(['\"]\])? = .*{_OUT} if \w+ {_PAD} else"
)
COLLATOR = "DataCollatorForLanguageModeling"

_SCRIPT = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("gpt2")
{pad}
model = AutoModelForCausalLM.from_pretrained("gpt2")
trainer = Trainer(
    model=model,
    args=TrainingArguments(output_dir="out", bf16=True),
    data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
)
trainer.train()
"""


def check(script: Script, project: Project) -> Iterator[Said]:
    collators = [
        call
        for call in script.calls_of(COLLATOR)
        if call.name.startswith("transformers.")
        and (mlm := call.arguments.get("mlm") or call.arguments.get("1")) is not None
        and mlm.value is False
    ]
    masked = list(_masked(script, project))
    by_trl = None if collators or masked else _by_trl(script, project)
    collators += [by_trl] if by_trl is not None else []
    if not collators and not masked:
        return
    found = _pad_is_eos(script, project)
    if found is None:
        return
    where = f"line {found.line}" if found.file == script.file else f"`{found.file}`, line {found.line}"
    by = f"`{COLLATOR}`" if collators else f"`{text_at(script, masked[0])}`"
    if by_trl is not None:
        by = f"`{by_trl.name.rpartition('.')[2]}`"
        by += f" (by transformers' `{COLLATOR}`)" if by_trl.name.endswith("Trainer") else ""
    yield Finding(
        f"The padding token is the end token ({where}), and {by} takes every padding token out of the loss: the"
        " model is never taught to stop.",
        place=collators[0].place if collators else masked[0],
        evidence=Evidence(Level.TEXT, {"pad token": "eos token", "collator": COLLATOR if collators else "its own"}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Pad with a token of its own ({_another(script, project)}), or mask by the attention mask"
            " (`labels[mask == 0] = -100`).",
            effort=Effort.MINUTES,
            accuracy="The end token is learned.",
        ),
        also=(found,),
    )


_UNUSED = {
    r"llama-?3": "<|reserved_special_token_0|>",
    r"qwen[\d.]*-[\w.]*-instruct|qwen3-[\d.]+b(?!-base)": "<|endoftext|>",
    r"mistral|llama-?2|tinyllama": "<unk>",
    r"gemma": "<pad>",
}
"""Tokens that a family's vocabulary has and that end nothing in it."""


def _another(script: Script, project: Project) -> str:
    """How the model that is trained gets one."""
    names = {str(job.get("model_name_or_path")).lower() for job in project.jobs if script.file in job.files}
    for family, token in _UNUSED.items():
        if len(names) == 1 and re.search(family, next(iter(names))):
            return f'`tokenizer.pad_token = "{token}"`, which its vocabulary has'
    return "`tokenizer.add_special_tokens({'pad_token': '<pad>'})` and `model.resize_token_embeddings(len(tokenizer))`"


OWN_COLLATOR = (0, 16)
"""The release of TRL from which on its trainer masks padding by place and not by the token."""


ONE_COLLATOR = (0, 15)
"""From which on packed rows go through the collator that others do; before, they had their labels already."""


def _by_trl(script: Script, project: Project) -> Call | None:
    """TRL's collator for answers alone, or the one that an old trainer takes where it is given none, for rows that get an
    end token of their own; for packed ones where that version does so."""
    jobs = [job for job in project.jobs if script.file in job.files and job.trainer is Trainer.TRL]
    version = project.pinned("trl")
    packed = any(job.get("packing") is not False and job.is_given("packing") for job in jobs)
    if packed and (version is None or version < ONE_COLLATOR):
        return None
    ended = any(re.search("eos", one.source, re.IGNORECASE) for one in rendered_texts(script, project))
    for call in script.calls_of("DataCollatorForCompletionOnlyLM") if ended else ():
        return call
    if not ended or not jobs or version is None or version >= OWN_COLLATOR:
        return None
    for call in script.calls_of("SFTTrainer"):
        if not {"data_collator", "**"} & set(call.arguments):
            return call
    return None


def _pad_is_eos(script: Script, project: Project) -> Place | None:
    if (named := pad_named_as_end(script, project)) is not None:
        return named
    for one in (script, *together(script, project)):
        found = PAD_IS_EOS.search(one.source)
        answers = ".generate(" in one.source and not re.search(r"\.train\(|\.backward\(", one.source)
        if found is not None and (one is script or not answers):
            return Place(one.file, one.source.count("\n", 0, found.end()) + 1)
    return None


def _masked(script: Script, project: Project) -> Iterator[Place]:
    """Statements that take labels out where the token is padding: in a function that puts no end back."""
    if "pad" not in script.source or not re.search(r"-100|IGNORE", script.source):
        return
    of_a_tokenizer = any("pad_token_id" in one.source for one in together(script, project))
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        if re.search(r"\beos|_eos", _BEHIND_TEXT.sub("", ast.unparse(function))):
            continue
        real = _told_by_the_token(function)
        for node in ast.walk(function):
            text = ast.unparse(node) if isinstance(node, ast.Assign) else ""
            found = _MASKED.search(text)
            if not found and real and (how := _BY_A_MASK.search(text)) and real & set(how.groups()):
                yield place_of(script, node)
                continue
            if found and (of_a_tokenizer or "pad_token_id" in found[0]):
                yield place_of(script, node)


_BEHIND_TEXT = re.compile(r"\+ (?:self\.)?\w+\.eos_token\b|\{(?:self\.)?\w+\.eos_token\}")
"""Where the end token's text is added to a row, which puts no label back."""

_BY_A_MASK = re.compile(
    rf"labels?\w*(?:['\"]\])? = .*\.masked_fill\(~?(\w+)(?:\.bool\(\)| == 0)?, {_OUT}\)"
    rf"|\w*labels?\w*(?:\['labels'\])?\[(?:~|torch\.logical_not\()?(\w+)(?:\.bool\(\))?(?: == 0|\))?\] = {_OUT}"
    rf"|labels?\w*(?:['\"]\])? = .*where\((\w+)(?:\.bool\(\)| == 1)?, .*{_OUT}"
)
_TOLD = re.compile(
    r"(\w+) = \(?\(?[\w.\[\]'\"]+(?:\.(?:ne|eq)\(| [!=]= )"
    r"((?:self\.)?\w*tok\w*\.pad_token_id|(?:self\.)?(?:pad|pad_?(?:token)?_?(?:id|idx|index)))\)?\)?"
    r"(?:\.(?:long|int|bool|float)\(\)|\.to\([\w.]+\))?$"
)


def _told_by_the_token(function: ast.FunctionDef) -> set[str]:
    """Masks that say where the token is padding, or is not."""
    found = (_TOLD.match(ast.unparse(node)) for node in ast.walk(function) if isinstance(node, ast.Assign))
    return {one[1] for one in found if one}


RULE = Rule(
    code="MSK003",
    name="end-masked-as-padding",
    summary="The end token is masked as padding.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what=f"transformers' `{COLLATOR}` with `mlm=False` copies the ids to labels and sets those that equal the padding"
        " token to -100, and so do many collators that people write. Where padding is the end token, all true"
        " ends go with it.",
        why="Generation then runs on to its limit.",
        detected="E0: the assignment, and the collator, TRL's for answers alone, its trainer of a release before 0.16 (which"
        " takes that collator) for rows that get an end token, or a statement that sets labels to -100 where the token is"
        " padding, in files of which one imports the other or that a third imports. A function that names the end token's id"
        " may put it back and is not reported.",
        proven="Print `collator([row])['labels']`: the last label of a row is -100.",
        deliberate=("Text is joined into full blocks, where no end is to be predicted.",),
        sources=(
            "transformers' `DataCollatorForLanguageModeling.torch_call`",
            "TRL 0.12.1 and 0.15.2, `sft_trainer.py`: that collator is the default; 0.16.1 has one of its own",
        ),
    ),
    bad=Example(
        {"train.py": _SCRIPT.format(pad="tokenizer.pad_token = tokenizer.eos_token")}, says="never taught to stop"
    ),
    good=Example({"train.py": _SCRIPT.format(pad='tokenizer.pad_token = "<|pad|>"')}),
)
