"""MSK055: answers are looked for by a mark that the rendered rows do not have."""

import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.rendered_text import RenderedText, rendered_texts
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import text_at
from dynotune.audit.facts.together import code, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.mark_out_of_context import mark_out_of_context
from dynotune.audit.shapes.own_marks import own_marks
from dynotune.audit.shapes.written_otherwise import written_otherwise

MARKS: Mapping[str, re.Pattern[str]] = {
    "ChatML": re.compile(r"<\|im_start\|>"),
    "Llama 3": re.compile(r"<\|start_header_id\|>"),
    "Llama 2 and Mistral": re.compile(r"\[/INST\]"),
    "Gemma": re.compile(r"<start_of_turn>"),
    "Phi 3 and Zephyr": re.compile(r"<\|assistant\|>"),
    "Alpaca": re.compile(r"^###|\n###"),
}
"""What begins an answer, by template."""

MODELS: tuple[tuple[str, str], ...] = (
    (r"qwen-?(1\.5|2|2\.5|3)[\w.-]*(instruct|chat)|qwen-?3-[\d.]+b$", "ChatML"),
    (r"llama-3[\w.-]*instruct", "Llama 3"),
    (r"llama-2[\w.-]*chat|mistral-7b-instruct|mixtral[\w.-]*instruct", "Llama 2 and Mistral"),
    (r"gemma-[\w.-]*it\b", "Gemma"),
    (r"phi-3[\w.-]*instruct|zephyr-7b", "Phi 3 and Zephyr"),
)
"""The template that a model's own tokenizer has."""

NAMED: Mapping[str, str] = {
    "chatml": "ChatML",
    "qwen": "ChatML",
    "llama-3": "Llama 3",
    "llama3": "Llama 3",
    "mistral": "Llama 2 and Mistral",
    "llama": "Llama 2 and Mistral",
    "gemma": "Gemma",
    "phi-3": "Phi 3 and Zephyr",
    "zephyr": "Phi 3 and Zephyr",
    "alpaca": "Alpaca",
}
"""What Unsloth's `get_chat_template` calls them, by the beginnings of names, longest first."""

_NAMED_BY = ("0", "model_name", "pretrained_model_name_or_path")
_ARGUMENTS = ("response_template", "response_part", "instruction_part", "instruction_template")


_HEADERS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "ChatML": ("<|im_start|>", re.compile(r"(?:system|user|assistant|tool)?(?:\s|$)")),
    "Llama 3": (
        "<|start_header_id|>",
        re.compile(r"(?:(?:system|user|assistant|tool|ipython)(?:<\|end_header_id\|>|$)|$)"),
    ),
    "Gemma": ("<start_of_turn>", re.compile(r"(?:(?:user|model)(?:\s|$)|$)")),
}
"""What stands behind the mark that begins a turn, where the model's own template writes it."""


def check(script: Script, project: Project) -> Iterator[Said]:
    for call in script.calls_of("DataCollatorForCompletionOnlyLM", "train_on_responses_only"):
        given = [call.arguments[name] for name in _ARGUMENTS if name in call.arguments]
        if call.name.endswith("OnlyLM") and (first := call.arguments.get("0")) is not None:
            given.append(first)
        for setting in given:
            if not isinstance(setting.value, str) or not setting.value.strip():
                continue
            mark = setting.value
            if (other := _missing(mark, script, project)) is not None:
                place = setting.place if setting.place.line else call.place
                yield _never_comes(mark, place, other, setting.via)
                break
            if call.name.endswith("OnlyLM"):
                place = setting.place if setting.place.line else call.place
                split = mark_out_of_context(mark, place, script, project)
                if split is not None:
                    yield split
                    break
            place = setting.place if setting.place.line else call.place
            found = _of_another(mark, place, call.place, script, project, setting.via)
            found = found or written_otherwise(mark, place, script, project, setting.via)
            if found is not None:
                yield found
                break
    yield from _of_ones_own(script, project)


def _of_ones_own(script: Script, project: Project) -> Iterator[Said]:
    """Rows that a model's own template renders, and a search that the script has written itself."""
    rendered = any("apply_chat_template(" in code(one) for one in together(script, project))
    for own in own_marks(script):
        also = (own.named,) if own.named is not None else ()
        found = _of_another(own.text, own.place, own.place, script, project, also) if rendered else None
        found = found or written_otherwise(own.text, own.place, script, project, also)
        if found is not None:
            yield found
            return


def _of_another(
    mark: str, place: Place, asked: Place, script: Script, project: Project, also: tuple[Place, ...] = ()
) -> Finding | None:
    """The mark is of another template than the one that rows are rendered in, or has another header than that one writes.
    asked: the call that gets it; also: where it comes from."""
    used = next((name for name, pattern in MARKS.items() if pattern.search(mark)), "")
    rendered, by = _rendered(together(script, project))
    other = used == rendered and _has_another_header(mark, used)
    if not used or not rendered or (rendered == used and not other) or _written(mark, asked, script, project):
        return None
    whose = f"which {used}'s template never writes" if other else f"{used}'s mark"
    return Finding(
        f"Answers are looked for by `{mark.strip()}`, {whose}, and rows are rendered in {rendered}'s template"
        f" ({by}): it never comes, so every label is masked, or none.",
        place=place,
        evidence=Evidence(Level.TEXT, {"mark": mark.strip(), "mark of": used, "template": rendered}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the mark from a rendered row (`tokenizer.apply_chat_template(row, tokenize=False)`).",
            accuracy="The loss is on the answers.",
            measure="Print the labels of one batch that are not -100.",
        ),
        also=also,
    )


def _has_another_header(mark: str, template: str) -> bool:
    begins, behind = _HEADERS.get(template, ("", re.compile("")))
    return bool(begins) and any(not behind.match(piece) for piece in mark.replace("\\n", "\n").split(begins)[1:])


def _missing(mark: str, script: Script, project: Project) -> RenderedText | None:
    """What rows are rendered by, where all of that was read, it has marks of its own, and this one is in none of it."""
    texts = rendered_texts(script, project)
    core = mark.strip().strip("\\n")
    if not core or not texts or not all(one.known for one in texts):
        return None
    pieces = [piece for one in texts for piece in one.literals]
    if any(core in piece or _may_begin(piece, core) for piece in pieces):
        return None
    marked = any(pattern.search(piece) for piece in pieces for pattern in MARKS.values())
    return texts[0] if marked else None


def _may_begin(piece: str, core: str) -> bool:
    """The piece ends as the mark begins, and data stands behind it: `f"### {role}:"`."""
    return any(piece.endswith(core[:length]) for length in range(1, len(core)))


def _never_comes(mark: str, place: Place, rendered: RenderedText, via: tuple[Place, ...]) -> Finding:
    home = (*rendered.also, rendered.place)[0]
    by = f"`{home.file}`, line {home.line}"
    return Finding(
        f"Answers are looked for by `{mark.strip()}`, and the text that rows are made of ({by}) has no such mark: it"
        " never comes, so every label is masked, or none.",
        place=place,
        evidence=Evidence(Level.TEXT, {"mark": mark.strip(), "in the rows' text": False}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Take the mark from the template that rows are made by.",
            accuracy="The loss is on the answers.",
            measure="Print the labels of one batch that are not -100.",
        ),
        also=(*via, rendered.place, *rendered.also),
    )


def _written(mark: str, asked: Place, script: Script, project: Project) -> bool:
    """The mark stands in text of the script's own, besides where it is looked for."""
    core = mark.strip().strip("\\n")
    own = text_at(script, asked).count(core)
    everywhere = sum(code(one).count(core) for one in together(script, project))
    definitions = len(
        re.findall(
            rf"(?i)\w*(?:template|part|marker|mark)\w*\s*=\s*[rf]?[\"'][^\"'\n]*{re.escape(core)}"
            rf"|\b\w+\s*=\s*[rf]?[\"'](?:\\n)*{re.escape(core)}(?:\\n)*[\"']",
            code(script),
        )
    )
    return everywhere > max(own, definitions)


def _rendered(near: Sequence[Script]) -> tuple[str, str]:
    """The template that rows are rendered in, and by what it is known. Empty: not known, or several."""
    found: dict[str, str] = {}
    for one in near:
        for call in one.calls_of("get_chat_template"):
            setting = call.arguments.get("chat_template") or call.arguments.get("1")
            name = setting.value if setting is not None else None
            start = next(
                (start for start in sorted(NAMED, key=len, reverse=True) if str(name).lower().startswith(start)), ""
            )
            found[NAMED.get(start, "")] = f"`get_chat_template(..., {name!r})`"
    if not found:
        for one in near:
            if "chat_template =" in one.source or "chat_template=" in one.source:
                return "", ""
            for call in one.calls_of("from_pretrained"):
                given = (call.arguments[name] for name in _NAMED_BY if name in call.arguments)
                setting = next(given, None)
                last = str(setting.value).rpartition("/")[2].lower() if setting is not None else ""
                for pattern, name in MODELS:
                    if re.search(pattern, last):
                        found[name] = f"`{setting.value if setting else ''}`'s own"
    return next(iter(found.items())) if len(found) == 1 else ("", "")


_SCRIPT = """from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only

model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B-Instruct", max_seq_length=2048)
tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")
trainer = train_on_responses_only(trainer, instruction_part="{0}user{1}", response_part="{0}assistant{1}")
"""
_ROWS = '''from trl import DataCollatorForCompletionOnlyLM

PROMPT = """### Question:
{question}

### Answer:
{answer}"""
rows = rows.map(lambda row: {"text": PROMPT.format(**row) + tokenizer.eos_token})
collator = DataCollatorForCompletionOnlyLM("### Response:\\n", tokenizer=tokenizer)
'''
RULE = Rule(
    code="MSK055",
    name="marks-that-never-come",
    summary="Answers are looked for by a mark that rendered rows do not have.",
    group=Group.CORRECTNESS,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="A collator that trains on answers alone finds where they begin by a text, which belongs to one chat"
        " template.",
        why="Where the text never comes every label of the row is -100, with a warning for each; some versions"
        " leave all of"
        " them.",
        detected="E0: the mark that is given, and the text that the project's own functions make of rows, where all of it"
        " was read; else the mark's family and the template: `get_chat_template`'s, or the model's own by its name; also of"
        " a search that the script has written itself, over rows that the model's own template renders; a header of a role"
        " that the model's template does not write; a mark that the project writes into its rows in other letters, or"
        " among headings of which it is none. Not said"
        " where the script writes the mark into its rows itself, or sets a template.",
        proven="Print the labels of one batch that are not -100.",
        deliberate=("A template is put into the tokenizer's files elsewhere.",),
        sources=("Unsloth's `chat_templates.py`", "TRL 0.19's `DataCollatorForCompletionOnlyLM`"),
    ),
    bad=Example({"train.py": _SCRIPT.format("<|im_start|>", "\\n")}, says="ChatML's mark"),
    good=Example({"train.py": _SCRIPT.format("<|start_header_id|>", "<|end_header_id|>")}),
    also_bad=(Example({"train.py": _ROWS}, says="has no such mark"),),
)
