"""The GPU that a project's own files name: its memory, and whether it is older than Ampere."""

import functools
import re
from collections.abc import Iterator, Sequence

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.launch import Launch
from dynotune.audit.facts.project import Project

GIB = {
    "H200": 141, "GH200": 96, "H100": 80, "B200": 180, "B300": 288, "L40S": 48, "L40": 48, "L4": 24, "A10G": 24,
    "A10": 24, "A30": 24, "A40": 48, "A6000": 48, "A5000": 24, "4090": 24, "3090": 24, "5090": 32, "T4": 16,
    "A100": 0, "V100": 0,
}  # fmt: skip
"""Nominal memory by name; 0: it comes in two sizes, and a file must say which."""

CARD = re.compile(
    rf"\b(?:RTX ?)?(?P<name>{'|'.join(sorted(GIB, key=len, reverse=True))})s?(?![A-Za-z0-9])"
    r"(?:[- ]?(?:SXM\d?|PCIe|NVL|HBM\de?))?(?:(?:[- ,:(_]{0,3}| with )(?P<size>\d{2,3}) ?Gi?B?\b)?",
    re.IGNORECASE,
)


def named_card(job: Job, project: Project) -> float | None:
    """GiB of the card that the job's files, the project's launchers or its documents name. None: none, or several kinds."""
    sizes = {float(size or GIB[name]) for name, size in _cards(job, project)}
    sizes.discard(0.0)
    return sizes.pop() if len(sizes) == 1 else None


def _cards(job: Job, project: Project) -> Iterator[tuple[str, str]]:
    """Names in capitals, with the memory where one is told."""
    files = {*job.files, *(launch.file for launch in project.launches)}
    texts = [f"{file}\n{project.texts.get(file, '')}\n{project.notes.get(file, '')}" for file in files]
    for text in (*texts, *project.documents.values()):
        for found in CARD.finditer(text):
            yield found["name"].upper(), found["size"] or ""


RIDGE = {
    "H200": 206, "GH200": 247, "H100": 295, "B200": 281, "L40S": 419, "L4": 403, "A10G": 117, "A10": 208, "A30": 177,
    "A40": 215, "A6000": 202, "4090": 164, "3090": 76, "5090": 117, "T4": 203, "V100": 139, "A100": 153,
}  # fmt: skip
"""Tokens of a pass up to which a card reads weights of 16 bits longer than it multiplies by them: dense products a second of
the data sheet over bytes a second (H100 SXM 989e12 / 3.35e12)."""


def bound_by_reading(job: Job, project: Project) -> tuple[str, int] | None:
    """The one card that the project names, and its tokens of `RIDGE`. None: none is named, or several kinds."""
    names = {name for name, _ in _cards(job, project)}
    name = names.pop() if len(names) == 1 else ""
    return (name, RIDGE[name]) if name in RIDGE else None


_OLDER = re.compile(
    r"\b(?:Tesla[ -])?(?:[VP]100|T4|P40)(?![\w])|\bRTX ?20\d\d|\b2080 ?Ti|\bGTX ?1\d\d\d"
    r"|\bQuadro RTX \d000|\bTITAN (?:V|RTX)\b"
    r"|\b(?:Turing|Volta|Pascal)\b|(?<=gpu[:=])(?:nvidia[-_])?(?:tesla[-_])?(?:[vp]100|t4|p40|2080ti)\b|\bsm_?(?:6[01]|7[05])\b"
    r"|\b(?:compute )?capability[ :]*(?:6\.[01]|7\.[05])|\bg4dn\b|\bp3(?:dn)?\.\d+xlarge|\bp2\.\d*xlarge"
    r"|\bTORCH_CUDA_ARCH_LIST\W{1,3}(?:6\.[01]|7\.[05])\b|\bNC\d+s_v3\b|\bNC\d+as_T4_v3\b",
    re.IGNORECASE,
)
"""GPUs before Ampere, as comments, documents, launchers and Slurm's `--gres` name them."""

_SINCE = re.compile(
    r"\b(?:[AHLB]\d{2,3}[SG]?|RTX ?(?:A\d000|[345]0\d\d)|[345]090|GH200|GB\d00|MI\d{3}X?)s?\b|\bAmpere"
    r"|\bHopper|\bBlackwell|\bAda\b"
    r"|\bsm_?(?:[89]\d|1[02]\d)\b|(?<=gpu[:=])(?:nvidia[-_])?[ahlb]\d{2,3}s?\b|\bnvidia-(?:tesla-)?[ahlb]\d{2,3}s?\b"
    r"|\b(?:p[45]\w{0,2}|g[56]\w?)\.\d*xlarge\b|\ba[23]-\w+gpu\b|\bg2-standard|_[AH]100_v[45]\b"
    r"|\bTORCH_CUDA_ARCH_LIST\W[^\n]*\b(?:[89]|1[02])\.\d\b"
)
_NOT_OURS = re.compile(
    r"\b(?:not|unlike|instead|than|before|former(?:ly)?|used to|was|were|until|old(?:er)?|if|unless|or"
    r"|e\.g|for example|such as|like"
    r"|except|drop(?:s|ped)?|retired|lacks?|no longer|never|support(?:s|ed)?|tested|someday|maybe|earlier)\b|n't\b",
    re.IGNORECASE,
)
"""Words by which a sentence speaks of a GPU that the project does not train on, or may not."""


def older_card(job: Job, project: Project) -> str:
    """The GPU before Ampere that the project trains on, as it is written: by the job's own files, else by the project's
    documents. Empty: none is named, or a newer one is too, or the sentence says another thing of it."""
    for texts in _naming(job, project):
        parts = [part for text in texts for part in _sentences(text)]
        if any(_SINCE.search(part) for part in parts):
            return ""
        told = [part for part in parts if _OLDER.search(part)]
        if told:
            plain = next((part for part in told if not _NOT_OURS.search(part)), "")
            found = _OLDER.search(plain)
            if found is not None and found[0].upper().startswith("TORCH_"):
                return f"GPU of compute capability {re.sub(r'[^0-9.]', '', found[0])}"
            return found[0] if found is not None else ""
    return ""


def may_be_older(job: Job, project: Project) -> bool:
    """Whether anything that the job's files, the project's documents or its launchers say names a GPU before Ampere at all,
    or a place that lends such ones. Another configuration's launcher counts, too: it tells what machine there is."""
    own, documents = _naming(job, project)
    launchers = [project.texts.get(file, "") for file in {launch.file for launch in project.launches}]
    return any(_OLDER.search(text) or _LENT.search(text) for text in (*own, *documents, *launchers))


_LENT = re.compile(r"\bcolab\b|\bkaggle\b", re.IGNORECASE)


def _naming(job: Job, project: Project) -> tuple[list[str], list[str]]:
    """Texts that may name the GPU: the job's own, then those of people."""
    own = [held.get(file, "") for held in (project.texts, project.notes) for file in job.files]
    return own, list(project.documents.values())


@functools.lru_cache(256)
def _sentences(text: str) -> Sequence[str]:
    """Lines that speak of a GPU, in their sentences."""
    lines = [line for line in text.split("\n") if _OLDER.search(line) or _SINCE.search(line)]
    return tuple(part for line in lines for part in re.split(r"[.;:]\s|[.;:]$", line))


_CARD = (
    r"(?:(?:NVIDIA|Tesla|RTX|GeForce|Quadro)\s){0,2}(?:[ATLVPHB]\d{1,3}[SG]?0?|A\d000|[2345]0[6789]0|GH200)(?:s\b|\b)"
)
_MANY = re.compile(
    rf"\b{_CARD}\s?[x\u00d7]\s?(?P<behind>[2-8])\b"
    rf"|(?<![\d.-])\b(?P<before>[2-8]|two|four|eight|both)\s?[x\u00d7]?\s?(?:{_CARD}|(?:GPUs|graphics cards|cards)\b)",
    re.IGNORECASE,
)
_WORDS = {"two": 2, "both": 2, "four": 4, "eight": 8}


def several_cards(job: Job, project: Project) -> tuple[int, str] | None:
    """How many GPUs of one machine the job's own files, its notebook's text or the project's documents name, with the line
    that does; None: they do not tell, or tell several numbers."""
    told: dict[int, str] = {}
    for texts in _naming(job, project):
        for line in (line for text in texts for line in text.split("\n")):
            for found in _MANY.finditer(line) if len(line) < 2_000 else ():
                word = (found["behind"] or found["before"]).lower()
                told.setdefault(_WORDS.get(word) or int(word), line.strip())
    return next(iter(told.items())) if len(told) == 1 else None


_ALONE = re.compile(
    rf"(?<![\w.-])(?:one|single|1\s?[x\u00d7]?)[- ](?:[\w-]+ )?(?:{_CARD}|GPU\b|graphics card\b|card\b)", re.IGNORECASE
)


def gpus_told(job: Job, project: Project, text: str = "") -> int | None:
    """GPUs of a run: those that its command starts; else those that this text names (`one A100`, `4x H100`), else those that
    the job's own files and the project's documents name, where they agree. None: they do not, or name none."""
    given = job.setting("num_processes")
    if given is not None and job.is_given("num_processes"):
        return given.value if type(given.value) is int else None
    if _sees_one(job, project):
        return 1
    own, documents = _naming(job, project)
    for texts in ([text], [*own, *documents]):
        counts = {1 for one in texts if _ALONE.search(one)}
        for line in (line for one in texts for line in one.split("\n") if len(line) < 2_000):
            words = [(found["behind"] or found["before"]).lower() for found in _MANY.finditer(line)]
            counts |= {_WORDS.get(word) or int(word) for word in words}
        if counts:
            return counts.pop() if len(counts) == 1 else None
    alone = job.trainer is Trainer.UNSLOTH or (
        any(file.endswith(".ipynb") for file in job.files) and any(_COLAB.search(text) for text in own)
    )
    return 1 if alone else None


_SHOWS_ITSELF = re.compile(r"^os\.environ\[[\"']CUDA_VISIBLE_DEVICES[\"']\]\s*=\s*[\"']\d[\"']", re.MULTILINE)


def _sees_one(job: Job, project: Project) -> bool:
    """Its script shows itself one GPU, or every command that starts it does: `CUDA_VISIBLE_DEVICES=0 python train.py`."""
    if any(_SHOWS_ITSELF.search(project.texts.get(file, "")) for file in job.files if file.endswith((".py", ".ipynb"))):
        return True
    shown = [
        shows_one(launch)
        for launch in project.launches
        if launch.script in job.files and launch.file in job.files and not launch.launcher
    ]
    return bool(shown) and all(shown)


def shows_one(launch: Launch) -> bool:
    """`CUDA_VISIBLE_DEVICES=0`."""
    shown = launch.variables.get("CUDA_VISIBLE_DEVICES")
    return shown is not None and re.fullmatch(r"\d", str(shown.value)) is not None


_COLAB = re.compile(r"\bcolab\b", re.IGNORECASE)
"""Lends one GPU at a time. Unsloth trains on one unless somebody starts several processes."""
