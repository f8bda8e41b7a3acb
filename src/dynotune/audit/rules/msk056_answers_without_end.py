"""MSK056: rows that are trained on do not end where answers end, so that the model never learns to stop."""

import ast
import re
from collections.abc import Iterator

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.opened_again import opened_again
from dynotune.audit.shapes.template_without_end import template_without_end
from dynotune.audit.shapes.text_without_end import text_without_end, tokenised_without_end

_ENDS = re.compile(
    r"eos|\beot|im_end|</s>|end_of_turn|end_of_text|endoftext|<\|end|\[/INST\]|apply_chat_template|chat_template"
    r"|special_tokens\(|additional_special|sep_token|END_|_END\b|post_processor|TemplateProcessing",
    re.IGNORECASE,
)
"""What may put an end behind an answer, by whatever name."""

PADS = re.compile(
    r"pad_token(?:_id)?(?:[\"']\])?\s*=\s*[\w.]*eos_token(?:_id)?|[\"']pad_token[\"']:\s*[\w.]*eos_token"
    r"|\b(?:pad|eos)_token_id=[\w.]*eos_token_id"
)
"""Where the end token is what rows are padded with, or where generation stops: in no row."""

_BY_OTHERS = re.compile(
    r"SFTTrainer|DPOTrainer|Seq2SeqLM|\bT5|\bBart|MaskedLM|SequenceClassification|unsloth|torchtune"
)
"""TRL adds the end itself; tokenizers of models with an encoder do so too."""

_IDS = re.compile(r"\w*tok\w*(\.encode)?\(")
_ANSWER = re.compile(r"respon|answer|output|completion|target|reply|summary|translation|assistant", re.IGNORECASE)


def check(project: Project, _: Project) -> Iterator[Said]:
    for script in project.scripts:
        yield from _of_a_script(script, project)
    seen: set[Place] = set()
    for job in project.jobs:
        for one in template_without_end(job, project):
            if isinstance(one, Finding) and one.place not in seen:
                seen.add(one.place)
                yield one


def _of_a_script(script: Script, project: Project) -> Iterator[Said]:
    yield from _without_end(script, project)
    yield from opened_again(script, project)
    yield from text_without_end(script, project, _ENDS)
    if "-100" not in script.source:
        yield from tokenised_without_end(script, project, _ENDS, PADS)


def _without_end(script: Script, project: Project) -> Iterator[Said]:
    if "-100" not in script.source and "IGNORE" not in script.source:
        return
    yield from _span_before_the_end(script)
    near = together(script, project)
    sources = [PADS.sub("", code(one)) for one in near]
    if not any("CausalLM" in one for one in sources) or not any(
        re.search(r"Trainer\(|\.backward\(", one) for one in sources
    ):
        return
    if any(_ENDS.search(one) or _BY_OTHERS.search(one) for one in sources):
        return
    if any(_ENDS.search(project.texts.get(config.file, "")) for config in project.configs):
        return
    for function in ast.walk(script.tree):
        where = _made(function) if isinstance(function, ast.FunctionDef | ast.Lambda) else None
        if where is not None:
            yield Finding(
                "Answers are tokenised without an end token, and nothing in these files adds one: the model is never"
                " taught to stop.",
                place=place_of(script, where),
                evidence=Evidence(Level.TEXT, {"tokenised": ast.unparse(where)[:80], "end token": None}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Add `[tokenizer.eos_token_id]` to the answer's ids, and to its labels.",
                    effort=Effort.LINE,
                    accuracy="The end of an answer is learned.",
                    measure="Print the last label of a row.",
                ),
            )
            return


_RENDERS_END = re.compile(r"content['\"]?\]?(\.strip\(\))?\s*\+\s*[\w.]*eos_token|content['\"\]]*\}\{?[\w.{]*eos_token")


def _span_before_the_end(script: Script) -> Iterator[Finding]:
    """`labels[lo:hi] = ids[lo:hi]` where `hi` is measured up to the content, and the end token stands behind it."""
    if not _RENDERS_END.search(script.source):
        return
    for function in ast.walk(script.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        given = {
            node.targets[0].id: node
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        }
        for node in given_spans(function):
            end = given.get(node)
            text = ast.unparse(end.value) if end is not None else ""
            ended = re.search(r"eos|end|render|template|\+ 1\b", text, re.IGNORECASE)
            if end is None or ended or not re.search(r"\+ \w+\[['\"]content['\"]\](\.strip\(\))?[,)]", text):
                continue
            yield Finding(
                f"The labelled span ends with the content (`{node} = {text[:60]}`), and the end token that is "
                f"rendered behind"
                " it carries no label: the model is never taught to stop.",
                place=place_of(script, end),
                evidence=Evidence(Level.TEXT, {"span": node, "end token": "outside"}),
                stake=Stake(AtStake.RESULT),
                remedy=Remedy(
                    Risk.BEHAVIOURAL,
                    "Measure the span up to the end token: add `tokenizer.eos_token` to what is measured.",
                    effort=Effort.LINE,
                    accuracy="The end of an answer is learned.",
                    measure="Print the last label of a row.",
                ),
            )


def given_spans(function: ast.FunctionDef) -> Iterator[str]:
    """The names of ends in `labels[a:b] = ids[a:b]`."""
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        slice_ = target.slice if isinstance(target, ast.Subscript) and "label" in ast.unparse(target) else None
        if isinstance(slice_, ast.Slice) and isinstance(slice_.upper, ast.Name):
            yield slice_.upper.id


def _made(function: ast.FunctionDef | ast.Lambda) -> ast.expr | None:
    """Where a function that masks prompts gets the ids of what is learned."""
    text = ast.unparse(function)
    if "label" not in text or not re.search(r"-100|IGNORE", text):
        return None
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _IDS.match(ast.unparse(node).rpartition("self.")[2]) and node.args
    ]
    return next((one for one in reversed(calls) if _ANSWER.search(ast.unparse(one.args[0])) or _short(one)), None)


def _short(call: ast.Call) -> bool:
    """A column by a letter, as in `row["a"]`."""
    return bool(re.search(r"\[[\'\"](a|ans|y)[\'\"]\]", ast.unparse(call.args[0])))


_SCRIPT = """from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")


def encode(row):
    prompt = tokenizer("Q: " + row["question"])["input_ids"]
    answer = tokenizer(row["answer"]%s)["input_ids"]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


Trainer(model=model, args=TrainingArguments(output_dir="out", bf16=True), train_dataset=rows.map(encode)).train()
"""


_RENDERED = """from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B-Instruct")


def render(row):
    return {"text": tokenizer.apply_chat_template(row["messages"], tokenize=False, add_generation_prompt=%s)}


SFTTrainer("Qwen/Qwen2.5-0.5B-Instruct", args=SFTConfig(output_dir="out"), train_dataset=rows.map(render)).train()
"""


RULE = Rule(
    code="MSK056",
    name="answers-without-end",
    summary="Rows that are trained on lack the end of an answer, or end with the beginning of another.",
    group=Group.CORRECTNESS,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="A function of the script's own makes ids and labels of prompt and answer, and no end token is among them:"
        " tokenizers of language models add none by themselves. Or whole conversations are rendered with"
        " `add_generation_prompt=True`, which writes what stands before an answer.",
        why="The model learns what answers say and not where they end, and generation runs on to its limit; or each row ends"
        " with the header of an answer that never comes, and what follows it is the end token.",
        detected="E0: a function that masks prompts with -100 and tokenises an answer, in files that name no end token, no"
        " chat template and no trainer that adds one; a column of text (or ids with labels) that is the template of"
        " a row's whole conversation, or of turns whose last one is the assistant's, with `add_generation_prompt=True`, in a"
        " program that trains; a text that ends with a column of the row, for"
        " the trainer of a TRL before 0.16, or Unsloth's, which add no end; and one that a script tokenises so for"
        " transformers' trainer; a chat template of the project's own that writes no end behind an assistant's turn.",
        proven="Print `tokenizer.decode(row['labels'][-1])`, or the end of a rendered row.",
        deliberate=(
            "The rows themselves end with the end token's text.",
            "The conversations end with the user's turn.",
        ),
        sources=(
            "transformers' tokenizers of Llama, Qwen, Mistral, Gemma and GPT-2: none adds an end token by default",
            "transformers' documentation of chat templates: what generation prompts are for",
            "TRL 0.12.1 and 0.15.2, `sft_trainer.py`: text is tokenised as it is; 0.16.1 adds the end token",
            "Unsloth 2024.12.4, 2025.3.1, 2025.9.1 and 2026.10.9: none adds one (`sft_prepare_dataset` of `unsloth_zoo`)",
        ),
    ),
    bad=Example({"train.py": _SCRIPT % ""}, says="never taught to stop"),
    good=Example({"train.py": _SCRIPT % " + tokenizer.eos_token"}),
    also_bad=(Example({"train.py": _RENDERED % "True"}, says="beginning of another answer"),),
    formerly=("MSK057",),
    former_names=("open-answer",),
)
