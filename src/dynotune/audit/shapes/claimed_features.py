"""A document, or a script's own head, says that something is used of which no line of the project speaks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claimed_settings import ITS_COST, OTHERWISE, USES, words_of
from dynotune.audit.shapes.claims_of_comments import comments_of
from dynotune.audit.shapes.resuming_claimed import AFTER, OFF

_HEAD = 25
"""Lines at the beginning of a script that speak of all of it."""

_ASIDE = re.compile(
    r"todo|road ?map|future|plan|idea|tip|trouble|faq|related|reference|require|credit|thank|acknowledg|citation|licen"
    r"|option|upcoming|change|limitation|known issue|background|theory|why",
    re.IGNORECASE,
)
"""Headings under which a document speaks of something else than what runs."""


@dataclass(frozen=True, slots=True)
class _Feature:
    name: str
    said: re.Pattern[str]
    done: re.Pattern[str]
    """What stands in code, configurations or commands where it is so, or may be."""

    by: frozenset[Trainer] = frozenset({Trainer.TORCH, Trainer.TRL, Trainer.TRANSFORMERS})
    """Of whose jobs it is so only where a line does it; other trainers do it by themselves."""


_LOOPS, _PLAIN = frozenset({Trainer.TORCH}), frozenset({Trainer.TORCH, Trainer.TRANSFORMERS})


def _feature(name: str, said: str, done: str, by: frozenset[Trainer] | None = None) -> _Feature:
    found = _Feature(name, re.compile(said, re.IGNORECASE), re.compile(done, re.IGNORECASE))
    return found if by is None else replace(found, by=by)


def _told(what: str) -> str:
    """A sentence that says it is used, or an entry of a list that has nothing but its name."""
    in_a_sentence = rf"(?:{USES}|\b(?:with|uses?|using|plus)\b[^.;:]{{0,120}}\b)(?:{what})\b"
    return rf"{in_a_sentence}|^\W*(?:{what})(?: (?:is )?(?:on|enabled|support))?\W*$"


_TRAINS = (
    r"\b(?:train(?:s|ed|ing)?|fine-?tun\w+|tuned)\b(?! data)[^.;:()]{0,40}"
    + r"\b(?:in|with|using) (?:mixed[- ]precision )?(?:\()?"
)
_EVERY = (
    r"if [^\n]*%[^\n]*:[^\n]*\n(?:[^\n]*\n){0,8}?[^\n]*\.step\("
    r"|% [\w.\[\]\"']+ (?:!=|>) 0:\s*continue|no_sync\("
)
"""`if (i + 1) % 4 == 0:` above the optimizer's step."""

_CAST = r"autocast|GradScaler|\bamp\b|mixed_precision|bf16|fp16|bfloat16|float16|half\(|precision"
_FEATURES = (
    _feature(
        "gradient clipping",
        _told(r"gradient[- ]clip\w*|grad(?:ient)?[- ]norm clip\w*"),
        r"clip_?grad|max_grad_norm|gradient_clip|grad_clip|clip_|max_norm|total_norm",
        _LOOPS,
    ),
    _feature("mixed precision", _told(r"(?:automatic )?mixed[- ]precision|amp"), _CAST, _PLAIN),
    _feature("bfloat16", rf"{_TRAINS}(?:bf16|bfloat16)\b", _CAST, _PLAIN),
    _feature("float16", rf"{_TRAINS}(?:fp16|float16|half precision)\b", _CAST, _PLAIN),
    _feature(
        "FlashAttention",
        _told(r"flash[- ]?attention[- ]?v?[23]"),
        r"flash|\bfa[23]\b|attn|kernels|open_clip|esm",
        _PLAIN,
    ),
    _feature(
        "checkpointing",
        _told(r"(?:gradient|activation) checkpointing"),
        r"gradient_?checkpoint|grad_?(?:checkpoint|ck?pt)|checkpoint_wrapper|utils\.checkpoint|utils import checkpoint"
        r"|activation_?check|recompute|remat|checkpoint\(",
        _PLAIN,
    ),
    _feature("LoRA", _told(r"q?lora(?: adapters?)?"), r"lora|peft|adapter"),
    _feature("label smoothing", _told(r"label[- ]smoothing"), r"smooth"),
    _feature("NEFTune", _told(r"neftune"), r"neft"),
    _feature(
        "a seed",
        r"\b(?:fixe[sd]|fix|sets?|setting) (?:the |a |all )?(?:random )?seeds?\b"
        r"|\b(?:random )?seeds? (?:is|are) (?:fixed|set)\b",
        r"seed",
        _LOOPS,
    ),
    _feature(
        "gradient accumulation",
        _told(r"gradient accumulation"),
        r"accum|grad_?acc|micro_?(?:batch|step)|" + _EVERY,
        _PLAIN,
    ),
    _feature(
        "warm-up",
        _told(r"(?:linear |learning[- ]rate |lr )?warm-?up"),
        r"warm_?up|LambdaLR|OneCycle|get_\w*schedule|SequentialLR",
        _PLAIN,
    ),
    _feature(
        "a cosine schedule",
        _told(r"(?:a )?cosine (?:\w+ )?(?:decay|schedule|annealing|lr)"),
        r"cosine|\bcos\(|schedul|OneCycle|LambdaLR",
        _LOOPS,
    ),
    _feature("early stopping", _told(r"early[- ]stopping"), r"early_?stop|patience|\bbest\w*\b(?s:.){0,600}?\bbreak\b"),
    _feature("`torch.compile`", _told(r"`?torch[._ ]compile`?"), r"compile"),
    _feature(
        "DeepSpeed",
        _told(r"deepspeed(?: zero(?:[- ]?(?:stage )?[0-3])?)?"),
        r"deepspeed|zero_?[0-3]|zero_stage|zero_optimization",
    ),
    _feature("FSDP", _told(r"fsdp2?|fully sharded data parallel"), r"fsdp|fully_?shard"),
    _feature(
        "Weights & Biases", _told(r"w(?:eights)? ?(?:&|and) ?b(?:iases)?|wandb"), r"wandb|report_to|log_with", _LOOPS
    ),
    _feature("TensorBoard", _told(r"tensorboard"), r"tensorboard|SummaryWriter|report_to|log_with", _LOOPS),
    _feature("Liger's kernels", _told(r"liger(?:[- ]kernels?)?"), r"liger"),
    _feature(
        "EMA weights",
        _told(r"ema(?: weights)?|exponential moving average"),
        r"\bema|(?<![a-z])ema(?![a-z])|(?-i:[a-z]E(?:ma|MA)(?![a-z]))|moving_average|swa_utils|AveragedModel",
    ),
    _feature(
        "resuming",
        r"\b(?:resumes?|restarts?|continues?|picks? up)\b[^.;]{0,20}\b(?:automatically|by itself)\b"
        r"|\b(?:resumes?|goes on|continues?|picks? up) from (?:the |its )?(?:last|latest|newest)\b"
        r"|\bautomatic(?:ally)? (?:resum|restart|continu)\w*|\bauto[- ]?resum\w*",
        r"resume|last_checkpoint|load_state|requeue|load_checkpoint|\bdcp\.load|distributed\.checkpoint",
    ),
)


_DOCSTRING = re.compile(r"\A(?:\s*\n)*[rR]?(?:\"\"\".*?\"\"\"|'''.*?''')", re.DOTALL)


def claimed_features(project: Project) -> Iterator[Said]:
    jobs = [job for job in project.jobs if job.trainer in (Trainer.TORCH, Trainer.TRL, Trainer.TRANSFORMERS)]
    if not jobs or len(jobs) < len(project.jobs) or any(job.holes for job in jobs):
        return
    lines = [line for line in _lines(project, jobs) if len(line[2]) < 400 and "accelerate config" not in line[2]]
    if not lines:
        return
    trainers = {job.trainer for job in jobs}
    text = _running(project)
    for feature in _FEATURES:
        done = OFF.sub("", text) if feature.name == "resuming" else text
        if not trainers <= feature.by or feature.done.search(done):
            continue
        for file, number, line in lines:
            said = next((part for part in re.split(r"(?<=[a-z)\d])[.;] ", line) if feature.said.search(part)), "")
            if said and not OTHERWISE.search(ITS_COST.sub("", AFTER.sub("", said))):
                yield _finding(feature, Place(file, number), said.strip(" -*#"))
                break


def _lines(project: Project, jobs: list[Job]) -> Iterator[tuple[str, int, str]]:
    for file, text in project.documents.items():
        if re.search(r"change|history|news|notes|todo|log|contribut", file.rpartition("/")[2], re.IGNORECASE):
            continue
        aside = False
        raw = text.split("\n")
        for number, (line, own) in enumerate(zip(words_of(raw), raw, strict=True), 1):
            if own.startswith("#"):
                aside = _ASIDE.search(own) is not None
            elif line and not aside:
                yield file, number, line
    for job in jobs:
        yield from ((file, line, text) for file, line, text in comments_of(job, project) if line <= _HEAD)


def _running(project: Project) -> str:
    """Everything but documents, lists of packages and comments."""
    lists = re.compile(r"(?:^|/)(?:requirements[^/]*\.txt|environment[^/]*\.ya?ml|pyproject\.toml|setup\.(?:py|cfg))$")
    scripts = {one.file: _DOCSTRING.sub("", code(one)) for one in project.scripts}
    others = (text for file, text in project.texts.items() if file not in scripts and not lists.search(file))
    kept = (line.split(" #")[0] for text in others for line in text.split("\n") if not line.lstrip().startswith("#"))
    installs = re.compile(r"\b(?:pip3?|uv|conda)\s+(?:pip\s+)?(?:install|add)\b")
    return "\n".join([*scripts.values(), *(line for line in kept if not installs.search(line))])


_HOW = {
    "bfloat16": "Ask for it (`bf16=True`; in a loop of one's own `torch.autocast`)",
    "float16": "Ask for it (`fp16=True`; in a loop of one's own `torch.autocast` and a `GradScaler`)",
    "mixed precision": "Ask for it (`bf16=True`; in a loop of one's own `torch.autocast`)",
    "FlashAttention": 'Load the model with `attn_implementation="flash_attention_2"`',
    "checkpointing": "Ask for it (`gradient_checkpointing=True`, or `model.gradient_checkpointing_enable()`)",
    "gradient accumulation": "Ask for it (`gradient_accumulation_steps`)",
    "warm-up": "Ask for it (`warmup_steps`, or a schedule that has one)",
    "NEFTune": "Ask for it (`neftune_noise_alpha`)",
    "Liger's kernels": "Ask for them (`use_liger_kernel=True`)",
    "`torch.compile`": "Ask for it (`torch_compile=True`, or `torch.compile(model)`)",
}
"""What to write, where it is one line."""


def _finding(feature: _Feature, place: Place, said: str) -> Finding:
    return Finding(
        f"`{place.file}` says that {feature.name} is in use (`{said[:80]}`), and no line of this project's code,"
        " configurations or commands does it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"claimed": said, "found": None}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{_HOW.get(feature.name, 'Put it in where it was meant to work')}, or take the sentence out.",
        ),
    )
