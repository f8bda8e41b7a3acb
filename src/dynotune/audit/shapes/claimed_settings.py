"""A document or a comment names a setting that no job has."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynotune.audit.facts.asked import given
from dynotune.audit.facts.cards import gpus_told
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.facts.together import code, connected, leads_out
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rules.dst052_batch_and_ranks import worked_out_wrongly
from dynotune.audit.shapes.claims_of_comments import claimed_batch, comments_of, ranks_share_rows

_OF = r"\s{0,3}(?:of|is|=|:|at|to)?\s{0,3}"
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10}
USES = r"\b(?:with|use[sd]?|using|enable[sd]?|turn(?:s|ed)? on)\s(?:[\w'-]{1,12}\s){0,2}"
OTHERWISE = re.compile(
    r"\b(?:not?|never|without|un(?!sloth)\w+|instead|unlike|unless|if|when|could|would|should|might|may|can|try|tried|tries|was|were|had|previous\w*"
    r"|earlier|before|old\w*|former\w*|originally?|paper|baseline|compared?|vs|than|increas\w*|lower\w*|rais\w*|reduc\w*|larger"
    r"|smaller|more|less|up to|at least|at most|default\w*|example|e\.g|recommend\w*|todo|todos|fixme|later|next|plan\w*|or"
    r"|after"
    r"|until|diverg\w*|overfit\w*|worse|better|oom|fails?|failed|first|last|per|takes?|took|about|see|set|change"
    r"|override\w*|pass|instance|other|another|both|ablation|sweep|either|only needed"
    r"|it fits|lm-eval|model card|evaluat\w+ (?:uses?|runs?|is|with)|evaluated"
    r"|for (?:smaller|bigger|larger))\b|n't|~|\?|->|→",
    re.IGNORECASE,
)
"""Of a sentence that may speak of something else than this run."""

_NO_ADAPTERS = re.compile(r"[,(]?\s*\b(?:no|without|not) (?:lora|q?lora|adapters?|peft)\b\)?", re.IGNORECASE)
"""What a sentence says once more of full training."""

_AS_THERE = re.compile(
    r"\b(?:as|like|same as|settings of|following) (?:in )?(?:the|our) (?:original )?"
    r"(?:paper|appendix|report|baseline)(?:'s \w+)?\b"
    r"|,? \b(?:no|without) (?:gradient )?accumulation\b",
    re.IGNORECASE,
)
"""What says that this run is as another was, or once more what its numbers are."""

ITS_COST = re.compile(
    r",? \b(?:and|which) (?:it )?(?:takes?|took|needs?|fits|uses about)\b.*$"
    r"|,? \bso (?:that )?(?:no|nothing|none|hardly any|little)\b[^.;]{0,60}"
    r"\b(?:padding|pad tokens|wasted?|lost|idle|compute)\b.*$",
    re.IGNORECASE,
)
"""How long the run takes, or what is won by it, behind what it is."""

_OF_NODES = re.compile(
    r"\b(?:[2-9]|\d{2,}|two|three|four|eight|several|multiple|many) (?:nodes|machines|hosts)\b"
    r"|\b(?:per|a|each) (?:node|machine|host)\b",
    re.IGNORECASE,
)
"""Of a sentence whose number of GPUs is a node's, not the run's."""

_HEAD = 12
"""Lines at the beginning of a file whose comments speak of all of it."""


@dataclass(frozen=True, slots=True)
class Claim:
    setting: str
    said: re.Pattern[str]
    """Its first group that is not empty is the value; none: a switch that is on."""

    same: Callable[[Any, str], bool | None]
    """Whether the value of a job is what is claimed; None: it cannot be told."""

    beside: re.Pattern[str] | None = None
    """What the line must speak of as well."""


def _number(text: str) -> float | None:
    text = text.lower().replace(",", "")
    if text in _WORDS:
        return float(_WORDS[text])
    try:
        return float(text[:-1]) * 1024 if text.endswith("k") else float(text)
    except ValueError:
        return None


def _equal(value: Any, text: str) -> bool | None:
    claimed = _number(text)
    if claimed is None or isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        held = float(value)
    except ValueError:
        return None
    if text.lower().endswith("k"):
        return abs(held - claimed) <= 0.03 * claimed  # 32k is 32,768 or 32,000
    return abs(held - claimed) <= 1e-6 * max(abs(held), abs(claimed))


def _share(value: Any, text: str) -> bool | None:
    return _equal(value, str(float(text) / 100)) if isinstance(value, float) else None


def _on(value: Any, _: str) -> bool | None:
    return value if isinstance(value, bool) else None


def _off(value: Any, _: str) -> bool | None:
    return not value if isinstance(value, bool) else None


def _in(value: Any, text: str) -> bool | None:
    return text.lower() in value.lower() if isinstance(value, str) else None


def _saves(value: Any, _: str) -> bool | None:
    return value not in ("no", "NO", False) if isinstance(value, str | bool) else None


def _named(value: Any, text: str) -> bool | None:
    """8 bits as optimizers of several libraries write them."""
    return re.sub(r"[- ]", "", text.lower()) in value.lower() if isinstance(value, str) else None


def _flash(value: Any, _: str) -> bool | None:
    return "flash" in value or value == "fa2" if isinstance(value, str) else None


def _claim(setting: str, said: str, same: Callable[[Any, str], bool | None] = _equal, beside: str = "") -> Claim:
    return Claim(setting, re.compile(said, re.IGNORECASE), same, re.compile(beside, re.IGNORECASE) if beside else None)


def _half(text: str) -> str:
    return "bf16" if text.lower().startswith("b") else "fp16"


def _precision(value: Any, text: str) -> bool | None:
    """accelerate's, which says one of both."""
    return value == _half(text) if value in ("bf16", "fp16") else None


def _not_half(value: Any, text: str) -> bool | None:
    """The trainer's switch of float16: on, where the other is said. Off it says nothing: weights may be of 16 bits."""
    return _half(text) == "fp16" if value is True else None


def _not_brain(value: Any, text: str) -> bool | None:
    return _half(text) == "bf16" if value is True else None


_IN_PRECISION = (
    r"\b(?:train(?:ed|s|ing)?|runs?|computed?)\b (?:\w+ ){0,2}?(?:in|with|under)"
    r" (?:pure |mixed )?(bf16|bfloat16|fp16|float16)\b"
)
_RATE = r"(\d(?:\.\d{1,3})?e-\d{1,2}|0\.0\d{1,8})(?!\d|\.\d|e)"
_ASKED = (
    r"(?:prompts?|instructions?|questions?|(?:user|human|customer|prompt|instruction|input)s?'? "
    r"(?:tokens?|turns?|messages?|parts?)|inputs)"
)
CLAIMS: Sequence[Claim] = (
    _claim("lora_r", rf"\b(?:rank|r){_OF}(\d{{1,4}})\b", beside=r"\blora|adapter"),
    _claim("lora_r", r"\brank[- ](\d{1,4})\b", beside=r"\blora|adapter"),
    _claim("lora_alpha", rf"\balpha{_OF}(\d{{1,4}})\b(?!\.)", beside=r"\blora|adapter|\brank\b"),
    _claim(
        "max_length",
        r"\b(?:sequence length|max(?:imum)?[ _-](?:seq(?:uence)?[ _-])?len(?:gth)?|context(?: length| window)?|cut-?off)"
        rf"{_OF}(\d{{1,3}}k|\d{{1,3}},?\d{{3}})\b",
    ),
    _claim(
        "num_train_epochs",
        r"\b(?:train\w*|runs?|for|sft|dpo|tuned)\b[^.;:]{0,40}?\b(\d|one|two|three|four|five) epochs?\b",
    ),
    _claim("learning_rate", rf"(?<!weight[ _-])\b(?:learning[ _-]rate|lr|schedule|decay){_OF}{_RATE}"),
    _claim(
        "num_train_epochs",
        r"[,:;(]\s*(\d{1,2}|one|two|three|four|five|six|eight|ten) (?:full |training )?epochs?(?=\W*(?:$|[,;)]))",
    ),
    _claim("mixed_precision", _IN_PRECISION, _precision),
    _claim("fp16", _IN_PRECISION, _not_half),
    _claim("bf16", _IN_PRECISION, _not_brain),
    _claim(
        "num_processes",
        r"\b(?:hardware|machine|server|node|box|workstation|instance)\b[^.;]{0,30}?\b(\d|two|four|eight) ?[x\u00d7]? ?"
        r"(?:[A-Z]\w*[ -]){0,3}(?:GPUs|A100s?|H100s?|H200s?|[345]090s?|A6000s?|L40S|L4s?|V100s?|T4s?)\b",
    ),
    _claim("lora_dropout", rf"\bdropout{_OF}(0?\.\d{{1,3}})\b", beside=r"\blora|adapter"),
    _claim("num_train_epochs", r"^\W*(?:num(?:ber)? (?:of )?)?(?:train(?:ing)? )?epochs?\s?[:=]\s?(\d{1,3})\W*$"),
    _claim("lora_r", r"^\W*(?:lora[ _-])(?:r|rank)\s?[:=]\s?(\d{1,4})\b"),
    _claim("lora_alpha", r"^\W*(?:lora[ _-])alpha\s?[:=]\s?(\d{1,4})\b"),
    _claim("lr_scheduler_type", r"\bschedule\w*\s?[:=]\s?(cosine|linear|constant)\b", _in),
    _claim(
        "optim",
        r"\b(8[- ]?bit) (?:adamw?|optimizer)|\badamw?[ _-]?\(?(8[- ]?bit)|\b(?:optimizer)\b\W+(adafactor|lion|sgd)\b",
        _named,
    ),
    _claim(
        "attn_implementation", rf"{USES}flash[- ]?attention[- ]?[23]\b|^\W*flash[- ]?attention[- ]?[23]\W*$", _flash
    ),
    _claim("gradient_checkpointing", r"^\W*(?:gradient|activation) checkpointing(?: \(?(?:on|enabled)\)?)?\W*$", _on),
    _claim("packing", r"^\W*(?:sequence|sample|example)? ?packing(?: \(?(?:on|enabled)\)?)?\W*$", _on),
    _claim(
        "load_best_model_at_end",
        r"\bbest (?:checkpoint|model)\b[^.;]{0,20}\b(?:is|are|gets?) (?:kept|saved|loaded|restored)\b",
        _on,
    ),
    _claim("weight_decay", rf"\bweight[ _-]decay{_OF}(0?\.\d{{1,3}})\b"),
    _claim(
        "lr_scheduler_type",
        r"\b(cosine|linear|constant)\b[ -](?:lr |learning[ -]rate )?(?:schedule|decay|scheduler)",
        _in,
    ),
    _claim("warmup_ratio", r"\b(\d{1,2}) ?% (?:linear )?warm", _share),
    _claim(
        "warmup_steps",
        r"\b(\d{1,5}) (?:linear )?warm-?up (?:steps|updates)|\bwarm-?up (?:of|over) (\d{1,5}) (?:steps|updates)",
    ),
    _claim(
        "packing",
        r"\b(?:rows|sequences|samples|examples|documents|tickets|conversations|chats|dialog(?:ue)?s|pairs|texts|prompts)"
        r" (?:are|get) packed\b|"
        rf"\bpacked (?:rows|sequences|samples|examples)|{USES}packing\b|\bpacking (?:is )?(?:on|enabled)\b",
        _on,
    ),
    _claim("gradient_checkpointing", rf"{USES}(?:gradient|activation) checkpointing|\brecomputes? activations\b", _on),
    _claim(
        "load_in_4bit", r"\bqlora\b|\b4[- ]bit (?:base|weights|nf4)|\bnf4\b", _on, beside=r"train|tun|base|lora|load"
    ),
    _claim("use_peft", r"\bfull(?:[- ]parameter)?[- ]fine-?tun\w*|\ball (?:weights|parameters) are trained\b", _off),
    _claim(
        "completion_only_loss",
        r"\b(?:loss|trains?|trained)\b[^.]{0,40}\b(?:only on (?:the )?|on (?:the )?)(?:(?:\w+'s|\w+s') )?(?:answers?"
        r"|responses?|completions?|assistant(?: turns?)?|outputs?|repl(?:y|ies))\b(?: (?:only|alone))?"
        r"|\b(?:users?'?|reviewers?'|customers?'|humans?'?|prompt)\b[^.;]{0,40}\bcontext only\b"
        r"|\bloss covers (?:only )?the (?:assistant|answers?|responses?|repl(?:y|ies)|completions?)",
        _on,
        beside=r"\b(?:only|alone)\b|\bcovers\b",
    ),
    _claim(
        "completion_only_loss",
        rf"\b{_ASKED}\b[^.;:,]{{0,15}}\b(?:is|are|gets?|being)\b (?:all )?(?:masked|ignored)\b",
        _on,
    ),
    _claim("completion_only_loss", rf"\b(?:we|which|that|and) masks? (?:out )?(?:the |all |every )?{_ASKED}\b", _on),
    _claim(
        "completion_only_loss",
        r"\bonly (?:on )?(?:the )?(?:[\w-]+ ){0,2}(?:is|are|gets?) (?:trained on|learned|in the loss|counted in the loss)\b",
        _on,
    ),
    _claim(
        "num_processes",
        r"\b(?:train\w*|tuned|runs?)\b[^.;:]{0,30}?\b(?:on|with|across|over) (\d|two|four|eight) ?[x\u00d7]? ?"
        r"(?:[A-Z]\w*[ -]){0,3}(?:GPUs|A100s?|H100s?|[34]090s?|A6000s?|L40S|V100s?)\b",
    ),
    _claim("seed", rf"\bseed{_OF}(\d{{1,6}})\b"),
)

BESIDE: Sequence[Claim] = (
    _claim("lora_r", rf"\b(?:rank|r){_OF}(\d{{1,4}})\b"),
    _claim(
        "max_length",
        r"\b(\d{1,3}k|\d{1,3},?\d{3})[- ](?:token )?(?:context|sequences?)\b|^\W*(\d{1,3}k|\d{3,6}) tokens\b",
    ),
    _claim("num_train_epochs", r"^\W*(\d|one|two|three|four|five) (?:full )?epochs?\b"),
    _claim("learning_rate", rf"^\W*{_RATE}(?!\s+(?:for|if|when|with|on)\b)"),
    _claim(
        "bf16",
        r"\b(?:train|run|compute|use|mixed)\w*\b[^.;]{0,20}\b(?:bf16|bfloat16)\b|\b(?:bf16|bfloat16) training\b",
        _on,
    ),
    _claim(
        "packing",
        r"^\W*pack (?:\w+ ){0,2}(?:rows|sequences|samples|examples|documents|conversations|chats|texts)\b",
        _on,
    ),
    _claim("gradient_checkpointing", r"\bcheckpointing (?:is )?(?:on|enabled)\b", _on),
    _claim("lr_scheduler_type", r"^\W*(cosine|linear|constant)\b", _in),
    _claim("bf16", r"^\W*(?:use )?(?:bf16|bfloat16)(?: (?:for|is|on)\b|\W*$)", _on),
    _claim(
        "save_strategy", r"^\W*(?:saves?|checkpoints?)\b[^.;]{0,20}\b(?:every|each|per) (?:epoch|\d+ steps)", _saves
    ),
)
"""What a comment at the key itself says in fewer words."""

_IS_CODE = re.compile(r"\W*\w+\s*[:=]\s*\S+\s*,?\s*")
"""A comment that is a setting taken out."""


def claimed_settings(project: Project) -> Iterator[Said]:
    for file, text in project.documents.items():
        if not re.search(r"change|history|news|notes|todo|log|contribut", file.rpartition("/")[2], re.IGNORECASE):
            yield from _of_a_document(file, text, project)
    for file, text in project.notes.items():
        yield from _of_a_notebook(file, text, project)
    for job in project.jobs:
        for file, line, text in comments_of(job, project):
            wrong = list(_of_a_line(Place(file, line), text, [job], line <= _HEAD, project))
            if not wrong and not _IS_CODE.fullmatch(text):
                wrong = list(_of_a_line(Place(file, line), text, [job], False, project, BESIDE))
            yield from wrong


def _of_a_document(file: str, text: str, project: Project) -> Iterator[Said]:
    folder = file.rpartition("/")[0]
    jobs = [job for job in project.jobs if not folder or any(one.startswith(f"{folder}/") for one in job.files)]
    for number, line in enumerate(words_of(text.split("\n")), 1):
        if line and jobs:
            yield from _of_a_line(Place(file, number), line, jobs, True, project)


_ENTRY = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_OF_TWO = re.compile(r"\s*\|([^|\d]+)\|([^|]*\d[^|]*|[^|]+)\|?\s*")
"""A row of a table with a name and what it is: rows with more, or with a number in their name, compare runs."""


def words_of(lines: Sequence[str]) -> Iterator[str]:
    """The lines of a document, those of code left empty; rows of two columns as `name: value`, other tables left empty."""
    fenced, in_list = False, False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            yield ""
            continue
        deep = line.startswith(("    ", "\t"))
        if line.strip() and not deep:
            in_list = _ENTRY.match(line) is not None
        row = _OF_TWO.fullmatch(line)
        if fenced or (deep and not in_list) or (line.lstrip().startswith("|") and row is None):
            yield ""
        else:
            yield re.sub(r"\*\*|__", "", f"{row[1].strip(' *`')}: {row[2].strip()}" if row is not None else line)


_COMMAND = re.compile(
    r"`(?:python3?|torchrun|accelerate|deepspeed|bash|sh|make|trl|axolotl|llamafactory-cli|\./)[^`]*`|`--?[^`]*`"
)
"""Code of a sentence that is typed, with values of its own."""


def _of_a_notebook(file: str, text: str, project: Project) -> Iterator[Said]:
    """What the text cells of a notebook with one job say of it."""
    jobs = [job for job in project.jobs if file in job.files]
    for line in text.split("\n") if len(jobs) == 1 else ():
        yield from _of_a_line(Place(file), line, jobs, True, project)


_ENDS = re.compile(r"(?:(?<=[a-z)\d])|(?<=[A-Z]{2}))[.;] |, (?:so|because|since|which) ")


def _of_a_line(
    place: Place, text: str, jobs: Sequence[Job], of_all: bool, project: Project, claims: Sequence[Claim] = CLAIMS
) -> Iterator[Said]:
    told: set[str] = set()
    for sentence in _ENDS.split(_COMMAND.sub(" ", text[:400])):
        if OTHERWISE.search(ITS_COST.sub("", _NO_ADAPTERS.sub("", _AS_THERE.sub("", sentence)))):
            continue
        for claim in claims:
            found = claim.said.search(sentence) if claim.setting not in told else None
            if found is None or (claim.beside is not None and not claim.beside.search(sentence)):
                continue
            if claim.setting == "num_processes" and _OF_NODES.search(sentence):
                continue
            value = next((group for group in found.groups() if group), "")
            told.add(claim.setting)
            yield from _differs(claim, value, found[0].strip(" \t-*+"), place, jobs, of_all, project)
            if claim.setting == "completion_only_loss" and of_all:
                yield from _of_roles(found[0].strip(" \t-*+"), place, jobs, project)
        if place.file.endswith(".md") and (batch := claimed_batch(sentence)) is not None:
            yield from _batch(batch, place, jobs, project, sentence)


def _of_roles(said: str, place: Place, jobs: Sequence[Job], project: Project) -> Iterator[Said]:
    """Loss on answers alone, and Axolotl's `roles_to_train` of every job has others among them."""
    found = []
    for job in jobs:
        data = given(job, "datasets")
        for number, one in enumerate(data.value if data is not None and isinstance(data.value, list) else ()):
            roles = one.get("roles_to_train") if isinstance(one, Mapping) else None
            others = [str(role) for role in roles if role not in _ANSWERING] if isinstance(roles, list) else []
            if data is not None and others:
                places = next((config.places for config in project.configs if config.file == data.place.file), {})
                found.append((others, places.get(f"datasets.{number}.roles_to_train", data.place)))
                break
    if not found or len(found) < len(jobs):
        return
    others, there = found[0]
    yield Finding(
        f"`{said}`, says `{place.file}`, and `roles_to_train` has `{'`, `'.join(others)}` too: their turns are in the loss.",
        place=there,
        evidence=Evidence(Level.RESOLVED, {"claimed": said, "roles_to_train": others}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(Risk.BEHAVIOURAL, "Write `roles_to_train: [assistant]`, or mend the text."),
        also=(place,),
    )


_ANSWERING = frozenset({"assistant", "gpt", "model", "bot", "chatbot"})

_PACKS = re.compile(
    r"pack|cu_seq|seq_?lens|position_ids|segment|Flattening|\bchain\(|chain\.from_iterable|concat|block_size|document_id|_id_doc",
    re.IGNORECASE,
)


def without_packing(job: Job, project: Project) -> Setting | None:
    """Of a trainer without a key for it, whose program has no line that may join rows; None: it may."""
    if job.trainer not in (Trainer.TRANSFORMERS, Trainer.TORCH) or job.holes:
        return None
    start = next((one for one in project.scripts if one.file in job.files), None)
    near = connected(start, project) if start is not None else ()
    if not near or leads_out(near, project) or any(_PACKS.search(code(one)) for one in near):
        return None
    return Setting("packing", False, job.home, Known.DEFAULT)


def _differs(
    claim: Claim, value: str, said: str, place: Place, jobs: Sequence[Job], of_all: bool, project: Project
) -> Iterator[Said]:
    settings = [job.setting(claim.setting) for job in jobs]
    if claim.setting == "packing":
        settings = [one or without_packing(job, project) for one, job in zip(settings, jobs, strict=True)]
    if not settings or any(one is None or not one.is_known or one.others for one in settings):
        return
    if claim.setting == "num_processes" and not all(job.is_given("num_processes") for job in jobs):
        return
    if claim.setting == "num_train_epochs" and any((job.get("max_steps") or -1) != -1 for job in jobs):
        return
    verdicts = [claim.same(one.value, value) for one in settings if one is not None]
    if any(verdict is not False for verdict in verdicts):
        return
    job, setting = jobs[0], settings[0]
    assert setting is not None
    # By the trainer's own name, which may mean the opposite (`train_on_inputs`).
    held = setting.given_value if setting.given_as and setting.given_value is not None else setting.value
    beside = setting.place.file == place.file and 0 <= setting.place.line - place.line <= 1
    where = setting.place if setting.place.file else job.home
    if not of_all and not beside and not _heads(place, where, project):
        return
    yield Finding(
        f"`{said}`, says `{place.file}`, and `{job.called(claim.setting)}` is `{held}`"
        f"{'' if job.is_given(claim.setting) else ' by default'}.",
        place=place,
        evidence=Evidence(Level.RESOLVED, {"claimed": said, claim.setting: setting.value}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.BEHAVIOURAL, "Set what was meant, or mend the text."),
        also=(job.place(claim.setting),),
    )


def _heads(comment: Place, setting: Place, project: Project) -> bool:
    """The comment stands above the statement, and the setting in it."""
    return comment.file == setting.file and any(
        isinstance(node, ast.Assign | ast.Expr | ast.AnnAssign | ast.Return)
        and node.lineno == comment.line + 1
        and node.lineno <= setting.line <= (node.end_lineno or node.lineno)
        for script in project.scripts
        if script.file == comment.file
        for node in ast.walk(script.tree)
    )


def _batch(claimed: int, place: Place, jobs: Sequence[Job], project: Project, sentence: str) -> Iterator[Said]:
    """A document's rows a step, where every factor is given."""
    made: list[int] = []
    for job in jobs:
        parts = [
            job.get("per_device_train_batch_size"),
            job.get("gradient_accumulation_steps"),
            gpus_told(job, project, sentence),
        ]
        if job.get("packing") is True or ranks_share_rows(job) or any(type(part) is not int for part in parts):
            return
        made.append(parts[0] * parts[1] * parts[2])
    files = {file for job in jobs for file in job.files}
    if any(True for one in project.scripts if one.file in files for _ in worked_out_wrongly(one, project)):
        return  # the same, where it is worked out
    if made and claimed not in made:
        yield Finding(
            f"`{place.file}` says {claimed} examples a step, and the settings come to {made[0]}.",
            place=place,
            evidence=Evidence(Level.RESOLVED, {"claimed": claimed, "rows a step": made}),
            stake=Stake(AtStake.CLARITY),
            remedy=Remedy(Risk.BEHAVIOURAL, "Set what was meant, or mend the text."),
            also=(jobs[0].place("gradient_accumulation_steps"), jobs[0].place("per_device_train_batch_size")),
        )
