"""A document, or a script's own head, says that something is used of which no line of the project speaks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.together import code
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.claimed_settings import OTHERWISE, USES, words_of
from dynotune.audit.shapes.claims_of_comments import comments_of

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

    of_loops: bool = False
    """Trainers of libraries do it by themselves."""


def _feature(name: str, said: str, done: str, of_loops: bool = False) -> _Feature:
    return _Feature(name, re.compile(said, re.IGNORECASE), re.compile(done, re.IGNORECASE), of_loops)


def _told(what: str) -> str:
    """A sentence that says it is used, or an entry of a list that has nothing but its name."""
    in_a_sentence = rf"(?:{USES}|\b(?:with|uses?|using|plus)\b[^.;:]{{0,120}}\b)(?:{what})\b"
    return rf"{in_a_sentence}|^\W*(?:{what})(?: (?:is )?(?:on|enabled|support))?\W*$"


_CAST = r"autocast|GradScaler|\bamp\b|mixed_precision|bf16|fp16|bfloat16|float16|half\(|precision"
_FEATURES = (
    _feature(
        "gradient clipping",
        _told(r"gradient[- ]clip\w*|grad(?:ient)?[- ]norm clip\w*"),
        r"clip_?grad|max_grad_norm|gradient_clip|grad_clip|clip_|max_norm|total_norm",
        True,
    ),
    _feature("mixed precision", _told(r"(?:automatic )?mixed[- ]precision|amp"), _CAST, True),
    _feature("gradient accumulation", _told(r"gradient accumulation"), r"accum|grad_?acc|micro_?(?:batch|step)", True),
    _feature(
        "warm-up",
        _told(r"(?:linear |learning[- ]rate |lr )?warm-?up"),
        r"warm_?up|LambdaLR|OneCycle|get_\w*schedule|SequentialLR",
        True,
    ),
    _feature(
        "a cosine schedule",
        _told(r"(?:a )?cosine (?:\w+ )?(?:decay|schedule|annealing|lr)"),
        r"cosine|\bcos\(|schedul|OneCycle|LambdaLR",
        True,
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
        "Weights & Biases", _told(r"w(?:eights)? ?(?:&|and) ?b(?:iases)?|wandb"), r"wandb|report_to|log_with", True
    ),
    _feature("TensorBoard", _told(r"tensorboard"), r"tensorboard|SummaryWriter|report_to|log_with", True),
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


_AFTER = re.compile(
    r"\b(?:after|when|if) (?:an? |the |it is )?(?:\w+ (?:is )?)?(?:crash|pre-?empt|interrupt|restart|requeue|kill|time)\w*"
)
"""When a run is gone on with, which is no condition."""


def claimed_features(project: Project) -> Iterator[Said]:
    jobs = [job for job in project.jobs if job.trainer in (Trainer.TORCH, Trainer.TRL, Trainer.TRANSFORMERS)]
    if not jobs or len(jobs) < len(project.jobs) or any(job.holes for job in jobs):
        return
    lines = [line for line in _lines(project, jobs) if len(line[2]) < 400 and "accelerate config" not in line[2]]
    if not lines:
        return
    loops = all(job.trainer is Trainer.TORCH for job in jobs)
    text = _running(project)
    for feature in _FEATURES:
        if (feature.of_loops and not loops) or feature.done.search(text):
            continue
        for file, number, line in lines:
            said = next((part for part in re.split(r"(?<=[a-z)\d])[.;] ", line) if feature.said.search(part)), "")
            if said and not OTHERWISE.search(_AFTER.sub("", said)):
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


def _finding(feature: _Feature, place: Place, said: str) -> Finding:
    return Finding(
        f"`{place.file}` says that {feature.name} is in use (`{said[:80]}`), and no line of this project's code,"
        " configurations or commands does it.",
        place=place,
        evidence=Evidence(Level.TEXT, {"claimed": said, "found": None}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.BEHAVIOURAL, "Put it in where it was meant to work, or take the sentence out."),
    )
