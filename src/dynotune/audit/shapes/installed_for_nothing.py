"""A text tells people to install a package for speed or memory that nothing of the project asks for."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class _Package:
    name: re.Pattern[str]
    """As commands install it."""

    uses: re.Pattern[str]
    """What uses it, or may, anywhere in code, configurations and commands."""

    why: str


def _package(name: str, uses: str, why: str) -> _Package:
    return _Package(re.compile(rf"(?<![\w/-])({name})(?![\w/-])", re.IGNORECASE), re.compile(uses, re.IGNORECASE), why)


# Unsloth, vLLM and models with code of their own take what they find installed: where one stands, nothing is said.
_MAY_TAKE_ANY = r"|unsloth|vllm|diffusers|trust_remote_code\W+True|trust[-_]remote[-_]code: true|open_clip|audiocraft"
_PACKAGES = (
    _package(
        "xformers",
        rf"xformers|memory_efficient_attention{_MAY_TAKE_ANY}",
        "transformers has no attention of xformers, and runs SDPA or flash attention",
    ),
    _package(
        "flash[-_]attn",
        rf"flash[-_ ]?att|flash_attn|\bfa[23]\b|attn_impl\w*\W+args|padding_free{_MAY_TAKE_ANY}|modernbert",
        "transformers takes flash attention where `attn_implementation` names it, and never by itself",
    ),
    _package(
        "bitsandbytes",
        rf"bitsandbytes|\bbnb|[48][-_]?bit|quantiz|qlora|paged_|int8|nf4|fp4{_MAY_TAKE_ANY}",
        "it is used for weights of 4 or 8 bits and for optimizers of 8 bits, and none is asked for",
    ),
    _package(
        "liger[-_]kernel",
        rf"liger{_MAY_TAKE_ANY}",
        "its kernels are put in where `use_liger_kernel` or a call asks for them, and never by themselves",
    ),
    _package(
        "(?:nvidia[-_])?apex",
        rf"\bapex\b{_MAY_TAKE_ANY}",
        "PyTorch's own autocast and fused optimizers do what it was for, and `apex` on PyPI is another package",
    ),
    _package(
        "deepspeed",
        rf"deepspeed|\bzero[-_]?[123]\b|HfArgumentParser|TrlParser{_MAY_TAKE_ANY}",
        "it shards and offloads where a configuration or a launcher asks for it, and never by itself",
    ),
    _package(
        "mamba[-_]ssm|causal[-_]conv1d|flash[-_]linear[-_]attention",
        rf"mamba|jamba|zamba|bamba|falcon[-_]?h1|nemotron|granite|\bssm\b|conv1d|next|rwkv|plamo|lfm|qwen3[._]5|hybrid|linear_attn"
        rf"|\bfla\b|kimi|state[- ]space{_MAY_TAKE_ANY}",
        "its kernels are those of state-space and linear layers, and the model has none",
    ),
    _package(
        "transformer[-_]engine",
        rf"transformer_engine|fp8|float8|megatron|nemo{_MAY_TAKE_ANY}",
        "its layers of 8 bits are used where a setting or the code asks for them, and never by themselves",
    ),
    _package(
        "hf[-_]transfer",
        "HF_HUB_ENABLE_HF_TRANSFER|hf_transfer",
        "it is used where `HF_HUB_ENABLE_HF_TRANSFER=1` is set, and never by itself",
    ),
)
_KERNELS = re.compile(
    "xformers|(?:nvidia[-_])?apex|mamba[-_]ssm|causal[-_]conv1d|flash[-_]linear[-_]attention|transformer[-_]engine|hf[-_]transfer"
)
"""Packages that are nothing but another way to do what others do: whoever lists one means it to be used."""

_TAKES_ANY = frozenset(
    {"vllm", "unsloth", "diffusers", "axolotl", "open-clip-torch", "audiocraft", "sglang", "lmdeploy", "nemo-toolkit"}
)
"""Packages that use what they find installed."""

_CLONED = re.compile(r"github\.com[/:]NVIDIA/(apex)\b", re.IGNORECASE)
_TO_FIT = re.compile(r"\b(?:fit|fits|fitting|fused)\b", re.IGNORECASE)
_INSTALL = re.compile(r"\b(?:pip3?|uv|conda|mamba|poetry)\s+(?:pip\s+)?(?:install|add)((?:\s+[\w.\[\],=<>~:/-]+)+)")
_IN_WORDS = re.compile(
    r"(?<!pip )(?<!pip3 )(?<!uv )(?<!conda )\binstall(?:ing)?\s+(?:the\s+)?[`*\[]{0,2}"
    r"(xformers|flash[-_ ]att(?:n|ention)(?:[- ]?[23])?|bitsandbytes|liger[-_]kernel"
    r"|(?:nvidia[-_ ])?apex|deepspeed)\b[`*\]]{0,2}",
    re.IGNORECASE,
)
"""`we recommend installing flash-attention`."""

_FOR_SPEED = re.compile(
    r"\b(?:fast\w*|quick\w*|speed\w*|slow\w*|accelerat(?:es|ed|ing|ion)|throughput|boost\w*|mixed[ -]precision"
    r"|memory|vram|out of memory|oom"
    r"|automatic\w*|picks? (?:it )?up|picked up|detect\w*|efficien\w*)\b",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"\b(?:not|never|no need|don't|doesn't|without|instead|inference|serv(?:e|ing)|generat\w+|demo|eval\w*|set|pass|flag"
    r"|then|--\w+)\b",
    re.IGNORECASE,
)
"""Of a sentence that says how the package is asked for, or that it is for something else."""

_LOOKS = re.compile(
    r"\s*(?:import (?:xformers|flash_attn|bitsandbytes|deepspeed|liger_kernel)(?: as _)?\s*(?:#.*)?$"
    r"|.*\bfind_spec\(|.*\bis_(?:flash_attn_2|bitsandbytes|deepspeed|liger_kernel|xformers)_available\(\))"
)
"""A line that only sees whether a package is there."""

_OFF = re.compile(
    r"\s*[\"']?\w+[\"']?\s*[:=]\s*[\"']?(?:false|off|no|null|none|~|disabled?|sdpa|eager|0)[\"']?,?(?=\s*(?:#.*)?$)",
    re.IGNORECASE,
)
"""A line of a configuration that switches something off."""

_MISSING = re.compile(
    r"\b(?:is |was |could )?not (?:be )?(?:found|installed|available|present|imported)\b", re.IGNORECASE
)

_READ_BY = (Trainer.TRL, Trainer.TRANSFORMERS, Trainer.TORCH, Trainer.AXOLOTL, Trainer.LLAMA_FACTORY)
_BESIDE = frozenset({"ninja", "packaging", "wheel", "setuptools", "triton", "-U"})
"""What builds another."""

_LISTS = re.compile(r"(?:^|/)(?:requirements[^/]*\.txt|environment[^/]*\.ya?ml|pyproject\.toml|setup\.(?:py|cfg))$")


def installed_for_nothing(project: Project) -> Iterator[Said]:
    jobs = [job for job in project.jobs if job.trainer in _READ_BY]
    if not jobs or len(jobs) < len(project.jobs) or any(job.holes for job in jobs):
        return
    said: dict[tuple[str, str], list[Place]] = {}
    for file, number, text in _sentences(project):
        for found in _INSTALL.finditer(text):
            words = re.split(r"\s(?:for|to|and|if|as|which|it)\s", found[1])[0]
            listed = [one for one in words.split() if not one.startswith("-") and one not in _BESIDE]
            if not all(any(one.name.search(word) for one in _PACKAGES) for word in listed):
                continue  # an installation of everything: no sentence is about one of them
            rest = text[: found.start()] + " " + text[found.end() - len(found[1]) + len(words) :]
            if not _FOR_SPEED.search(rest) or _OTHERWISE.search(_MISSING.sub("", rest)):
                continue
            for package in _PACKAGES:
                named = package.name.search(words)
                if named is not None and not _in_use(package, project):
                    said.setdefault((file, named[1].replace("_", "-")), []).append(Place(file, number))
    for file, number, name in _listed(project):
        package = next(one for one in _PACKAGES if one.name.search(name))
        if all(known != name for _, known in said) and not _in_use(package, project):
            said.setdefault((file, name), []).append(Place(file, number))
    for (_, name), places in said.items():
        package = next(one for one in _PACKAGES if one.name.search(name))
        yield _finding(name, package, places, _switched_off(package, project))


def _listed(project: Project) -> Iterator[tuple[str, int, str]]:
    """Packages of lists, images and commands of which each is for one purpose, and others that a comment beside says are for
    speed or memory. Of images with `apex`, the clone that is built counts, too."""
    if any(one.name in _TAKES_ANY for one in project.asked):
        return
    for one in project.asked:
        if one.place.file in project.documents or not any(package.name.fullmatch(one.name) for package in _PACKAGES):
            continue
        line = (project.texts.get(one.place.file, "").split("\n")[one.place.line - 1 :] or [""])[0]
        comment = line.partition("#")[2]
        for_speed = _FOR_SPEED.search(comment) or _TO_FIT.search(comment)
        if _KERNELS.fullmatch(one.name) or (for_speed and not _OTHERWISE.search(comment)):
            yield one.place.file, one.place.line, one.name
    for file, text in project.texts.items():
        for number, line in enumerate(text.split("\n"), 1) if "apex" in text else ():
            if not line.lstrip().startswith("#") and (found := _CLONED.search(line)) is not None:
                yield file, number, found[1].lower()


def _sentences(project: Project) -> Iterator[tuple[str, int, str]]:
    """Sentences with a command that installs: of documents, of notebooks' texts, and of what scripts print or say. A
    command alone in a line takes the line of words before it."""
    sources = {**project.documents, **project.notes, **{k: v for k, v in project.texts.items() if not _LISTS.search(k)}}
    for file, text in sources.items():
        if "install" not in text.lower() or re.search(r"change|history|news", file.rpartition("/")[2], re.IGNORECASE):
            continue
        lines = [_IN_WORDS.sub(_as_command, line) if len(line) < 2_000 else line for line in text.split("\n")]
        for at, line in enumerate(lines):
            if not _INSTALL.search(line):
                continue
            before = next((one for one in reversed(lines[max(0, at - 3) : at]) if re.search(r"\w{3}.*\s", one)), "")
            alone = _INSTALL.search(line)
            if alone is not None and not re.search(r"\w{3}", line[: alone.start()] + line[alone.end() :]):
                line = f"{before.rsplit('. ', 1)[-1]} {line}"
            line = f"{line} {lines[at + 1]}" if at + 1 < len(lines) and file in project.documents else line
            told = file in project.documents or file in project.notes  # else a message, which is about one thing
            for sentence in re.split(r"(?<=[a-z)`])[.;] (?=[A-Z])", line) if told else [line]:
                yield file, at + 1 if file not in project.notes else 0, sentence


def _as_command(found: re.Match[str]) -> str:
    name = found[1].lower().replace(" ", "-")
    return f"pip install {'flash-attn' if name.startswith('flash') else name} |"  # no further name belongs to it


def _in_use(package: _Package, project: Project) -> bool:
    """Anything beside lists and commands that install may use it."""
    for file, text in project.texts.items():
        if _LISTS.search(file):
            continue
        told = (_INSTALL, _IN_WORDS) if file in project.documents else (_INSTALL,)
        if any(_CLONED.search(line) for line in text.split("\n")) and package.name.search("apex"):
            text = re.sub(r"(?i)^.*\bapex\b.*$", "", text, flags=re.MULTILINE)  # what builds it
        lines = [line for line in text.split("\n") if not any(one.search(line) for one in told)]
        is_config = any(one.file == file for one in project.configs)
        kept = "\n".join(line for line in lines if not (_LOOKS.match(line) or (is_config and _OFF.match(line))))
        if package.uses.search(kept):
            return True
    # A document that names the key or the flag says how it is asked for.
    return any(
        re.search(r"attn_implementation|--\w*(?:flash|xformers|bit|liger|deepspeed)", text)
        for text in project.documents.values()
    )


def _switched_off(package: _Package, project: Project) -> tuple[Place, str] | None:
    """Where a configuration says that it is not wanted, and how."""
    for config in project.configs:
        for number, line in enumerate(project.texts.get(config.file, "").split("\n"), 1):
            if (off := _OFF.match(line)) is not None and package.uses.search(line):
                return Place(config.file, number), off[0].strip().rstrip(",")
    return None


def _finding(name: str, package: _Package, places: Sequence[Place], off: tuple[Place, str] | None) -> Finding:
    why = package.why if off is None else f"`{off[1]}` in `{off[0].file}`:{off[0].line} leaves it unused"
    *others, place = places  # the command stands behind the words
    return Finding(
        f"`{place.file}` tells to install {name} for training, and nothing of this project asks for it: {why}.",
        place=place,
        evidence=Evidence(Level.TEXT, {"installed": name, "asked for by": None}),
        stake=Stake(AtStake.CLARITY),
        remedy=Remedy(Risk.SAFE, "Take the sentence out, or ask for it in the settings after measuring it."),
        also=(*others, *((off[0],) if off is not None else ())),
    )
