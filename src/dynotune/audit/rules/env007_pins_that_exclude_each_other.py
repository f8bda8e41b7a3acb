"""ENV007: the versions that a project asks for cannot be installed or used together, or lack what its scripts import."""

import re
from collections.abc import Callable, Iterator, Sequence

from dynotune.audit.facts.installed_together import installed_together
from dynotune.audit.facts.job import Method
from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.schema.keys import earlier
from dynotune.audit.schema.wants import OF_AN_EXTRA, fits, wanted
from dynotune.audit.shapes.build_for_the_cpu import build_for_the_cpu
from dynotune.audit.shapes.built_for_another import built_for_another
from dynotune.audit.shapes.imports_that_are_gone import imports_that_are_gone
from dynotune.audit.shapes.models_of_a_later_release import models_of_a_later_release

NEED_LATER: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("torch", "0", "2.3", "numpy", "2.0", "it is built against NumPy 1 and cannot hand arrays over"),
    ("torch", "0", "2.1", "transformers", "4.53", "it leaves PyTorch off, and no model can be made"),
    ("bitsandbytes", "0", "0.45.1", "torch", "2.6", "it imports `triton.ops`, which Triton 3.2 has no more, and stops"),
    ("accelerate", "0", "1.3", "transformers", "4.52.4", "its Trainer calls `unwrap_model` with `keep_torch_compile`"),
    ("accelerate", "0", "0.26", "transformers", "4.45", "its Trainer refuses to start"),
    ("accelerate", "0", "0.21", "transformers", "4.37", "its Trainer refuses to start"),
    ("accelerate", "0", "1.1", "transformers", "5.0", "its Trainer refuses to start"),
    ("transformers", "0", "4.56.2", "trl", "1.0", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.56.1", "trl", "0.23", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.55", "trl", "0.21", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.53.2", "trl", "0.20", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.51", "trl", "0.19", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.50", "trl", "0.18", "TRL's metadata asks for a later one"),
    ("transformers", "0", "4.46", "trl", "0.12", "TRL's metadata asks for a later one"),
    ("accelerate", "0", "1.10.1", "trl", "1.16", "TRL's metadata asks for a later one"),
    ("accelerate", "0", "1.4", "trl", "0.19", "TRL's metadata asks for a later one"),
    ("accelerate", "0", "0.34", "trl", "0.12", "TRL's metadata asks for a later one"),
    ("transformers", "4.20", "5.0", "huggingface-hub", "1.0", "transformers 4 wants it below 1.0"),
    ("datasets", "0", "2.14.6", "fsspec", "2023.10", "it takes local files for remote ones, and `load_dataset` stops"),
    ("sentence-transformers", "0", "2.3", "huggingface-hub", "0.26", "it imports `cached_download`, which is gone"),
)
"""Releases from one to before another, with another package from a release on: they do not work, or cannot be installed,
together.

The first row of a pair that fits counts. Seen in the releases themselves:
- torch: libtorch_python.so of 2.2.2 (Linux) loads `numpy.core._multiarray_umath` alone, that of 2.3.0 `numpy._core` too
- accelerate beside transformers: ACCELERATE_MIN_VERSION in utils/import_utils.py (0.21.0 in 4.37.2 to 4.44.2,
  0.26.0 in 4.45.0 to 4.57.6, 1.1.0 in 5.0.0), which TrainingArguments asks for
- torch beside transformers: utils/import_utils.py of 4.53.0 and 4.56.0; 4.51.3 still takes an older one
- accelerate 1.3 beside transformers: trainer.py of 4.53.0 and 4.56.0, pull requests accelerate 3282 and transformers 38339
- bitsandbytes beside torch: triton/int8_matmul_mixed_dequantize.py of 0.45.0 and 0.45.1; torch 2.6.0 asks for Triton 3.2
- trl: METADATA of 1.0.0, 1.15.0 and 1.16.0 (accelerate 1.4.0, 1.4.0, 1.10.1; transformers 4.56.2), and of 0.12.0, 0.15.0,
  0.18.0, 0.19.0, 0.20.0, 0.21.0 and 0.23.0 (transformers 4.46.0, 4.46.0, 4.50.0, 4.51.0, 4.53.2, 4.55.0 and 4.56.1;
  accelerate 0.34.0 before 0.19.0, 1.4.0 from it on)
- huggingface-hub: METADATA of transformers, uncapped in 4.10.0, below 1.0 in
  4.20.0 to 4.57.6 (29 releases looked at), from 1.3.0 in 5.0.0
- fsspec beside datasets: METADATA of 2.14.4 (no bound), 2.14.5 (below 2023.9.0) and 2.14.6 (to 2023.10.0); datasets
  issue 6352
- huggingface-hub beside sentence-transformers: METADATA of 2.2.2 (no bound); `cached_download` left in 0.26.0"""

TOKENIZERS: tuple[tuple[str, str, str], ...] = (
    ("4.40", "0.19", "0.20"),
    ("4.45", "0.20", "0.21"),
    ("4.47", "0.21", "0.22"),
)
"""transformers from a release on (the last that fits counts, below 4.48) wants tokenizers from one to below another:
METADATA of 4.40.0 to 4.47.1."""

BREAKS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        "trl",
        "0.7.11",
        "0.12",
        "transformers",
        "4.46",
        "its preference trainers' `get_batch_samples` stands in the way of the Trainer's own",
    ),
    (
        "trl",
        "0.7.11",
        "0.13",
        "transformers",
        "4.47",
        "its preference trainers' `log` takes one argument less than the Trainer gives it",
    ),
)
"""Of preference training: releases from one to before another, with another package from a release on, and what breaks.
trainer/dpo_trainer.py of trl 0.7.11, 0.11.4, 0.12.0 to 0.12.2 and 0.13.0; trainer.py of transformers 4.45.2, 4.46.0 and
4.47.0. Of these releases of TRL the metadata of 0.12.2 alone says so (transformers<4.47.0)."""

_OF_PAIRS = ("ORPOTrainer", "CPOTrainer", "KTOTrainer", "BCOTrainer")
"""They override the same methods: trainer/*_trainer.py of trl 0.11.4."""

STOPS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("peft", "0.16", "0.18", "transformers", "5.0", "it imports `HybridCache`, which is gone, and `import peft` fails"),
)
"""The same, whatever is trained. peft_model.py of 0.16.0 and 0.17.1 imports it at its head; those of 0.5.0 to 0.15.2 do not
name it, and 0.18.0's imports it inside a function, for transformers before 4.56. transformers 5.0.0 has no such class,
4.57.6 has."""


def check(project: Project, _: Project) -> Iterator[Said]:
    yield from build_for_the_cpu(project)
    pinned = [one for one in project.asked if one.operator in ("==", "===") and one.version and "*" not in one.version]
    together = installed_together(project)
    for one in pinned:
        wants = wanted(one.name, one.version)
        for beside in pinned:
            if beside.name not in wants or fits(beside.version, wants[beside.name]) or not together(one, beside):
                continue
            if beside.name in OF_AN_EXTRA and beside.name not in one.extras and not _uses(beside.name, project):
                continue
            yield Finding(
                f"{beside.name} {beside.version} is asked for beside {one.name} {one.version}, which wants"
                f" {beside.name}{wants[beside.name]}: they cannot be installed, or do not start, together.",
                place=beside.place,
                evidence=Evidence(
                    Level.TEXT, {one.name: one.version, beside.name: beside.version, "wants": wants[beside.name]}
                ),
                stake=Stake(AtStake.STOPS),
                remedy=Remedy(
                    Risk.OPERATIONAL,
                    f"Ask for {beside.name}{wants[beside.name]}, or take the pin of {beside.name} out.",
                    effort=Effort.MINUTES,
                ),
                also=(one.place,),
            )
    least = [*pinned, *(one for one in project.asked if one.operator in (">=", "~=", ">") and "*" not in one.version)]
    yield from _too_old(pinned, least, together)
    yield from _of_torch(pinned, together)
    yield from built_for_another(pinned, project, together)
    prefers = any(job.method is Method.DPO for job in project.jobs) or any(
        script.calls_of(*_OF_PAIRS) for script in project.scripts
    )
    yield from _broken(pinned, least, (*STOPS, *(BREAKS if prefers else ())), together)
    yield from imports_that_are_gone(pinned, project)
    yield from models_of_a_later_release(pinned, project)


_Together = Callable[[Asked, Asked], bool]


def _too_old(pinned: Sequence[Asked], least: Sequence[Asked], together: _Together) -> Iterator[Said]:
    said = set()
    for package, first, before, other, since, why in NEED_LATER:
        for one in pinned:
            for beside in least:
                if (one.name, beside.name) != (package, other) or one in said or not together(one, beside):
                    continue
                if (
                    not earlier(one.version, first)
                    and earlier(one.version, before)
                    and not earlier(beside.version, since)
                ):
                    said.add(one)
                    yield _together(one, beside, f"{why} ({package} from {before} on would do)")
    for one in pinned:
        for beside in pinned:
            if (one.name, beside.name) != ("tokenizers", "transformers") or not together(one, beside):
                continue
            wants = [(low, high) for since, low, high in TOKENIZERS if _numbers(since) <= _numbers(beside.version)]
            low, high = wants[-1] if wants else ("", "")
            if (
                wants
                and _numbers(beside.version) < (4, 48)
                and not _numbers(low) <= _numbers(one.version) < _numbers(high)
            ):
                yield _together(one, beside, f"it wants tokenizers from {low} to below {high}")


def _of_torch(pinned: Sequence[Asked], together: _Together) -> Iterator[Said]:
    """torchvision and torchaudio are built for one release of PyTorch each: METADATA of torchvision 0.15.1 (torch 2.0.0) to
    0.24.0 (2.9.0) and of torchaudio 2.0.1 (2.0.0) to 2.9.1 (2.9.1)."""
    for one in pinned:
        for beside in pinned:
            if one.name not in ("torchvision", "torchaudio") or beside.name != "torch":
                continue
            there, torch = _filled(_numbers(one.version), 2), _filled(_numbers(beside.version), 2)
            if torch[0] != 2 or torch[1] > 9 or not together(one, beside):
                continue
            wanted = (0, torch[1] + 15) if one.name == "torchvision" else torch
            if there != wanted:
                yield _together(one, beside, f"{one.name} {wanted[0]}.{wanted[1]} is the one that is built for it")


def _together(one: Asked, beside: Asked, why: str) -> Finding:
    return Finding(
        f"{one.name} {one.version} does not go with {beside.name} {beside.version}: {why}.",
        place=one.place,
        evidence=Evidence(Level.TEXT, {one.name: one.version, beside.name: beside.version}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(Risk.OPERATIONAL, "Ask for releases that go together.", effort=Effort.MINUTES),
        also=(beside.place,),
    )


def _broken(
    pinned: Sequence[Asked],
    least: Sequence[Asked],
    table: Sequence[tuple[str, str, str, str, str, str]],
    together: _Together,
) -> Iterator[Said]:
    for one in pinned:
        for package, first, before, other, since, why in table:
            if one.name != package or earlier(one.version, first) or not earlier(one.version, before):
                continue
            for beside in least:
                if beside.name != other or earlier(beside.version, since) or not together(one, beside):
                    continue
                yield Finding(
                    f"{package} {one.version} does not work with {other} {beside.version}: {why}"
                    + (", and the first step stops." if "import" not in why else "."),
                    place=one.place,
                    evidence=Evidence(Level.TEXT, {package: one.version, other: beside.version}),
                    stake=Stake(AtStake.STOPS),
                    remedy=Remedy(
                        Risk.OPERATIONAL,
                        f"Ask for {other}<{since}, or for {package}>={before}.",
                        effort=Effort.MINUTES,
                    ),
                    also=(beside.place,),
                )
                return


def _uses(package: str, project: Project) -> bool:
    """A job of the project has a setting of the package's name (`deepspeed: ds.json`)."""
    return any(job.get(package) for job in project.jobs)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _filled(numbers: tuple[int, ...], width: int) -> tuple[int, ...]:
    return (*numbers, *(0 for _ in range(width)))[:width]


RULE = Rule(
    code="ENV007",
    name="pins-that-exclude-each-other",
    summary="Versions that a project asks for cannot be used together, or lack what its scripts import.",
    group=Group.ENVIRONMENT,
    subject=Subject.PROJECT,
    check=check,
    page=Page(
        what="Training packages name the versions of others that they work with, some of them exactly.",
        why="The installation fails, or the trainer refuses to start on a machine that has been set up for it.",
        detected="E0: exact versions in one file of requirements, one image or one command, or in lists that one of them"
        " installs into one environment, against a table of what releases want; wheels and images built for another"
        " PyTorch or Python than is asked for, and PyTorch's build for the CPU where the project has a GPU;"
        " and names that scripts import, and nothing catches, against a table of those that releases brought and took"
        " away; and models by their names, against the release of transformers that their kind came with. ENV004 asks"
        " the environment itself.",
        proven="`pip install --dry-run -r requirements.txt`.",
        deliberate=("The check is switched off (`DISABLE_VERSION_CHECK=1`), and the pair was tried.",),
        sources=(
            "the metadata of Axolotl 0.9.2, 0.12.2 and 0.19, and of LLaMA-Factory 0.9.1 to 0.9.5",
            "LLaMA-Factory's check of versions at its start (extras/misc.py, hparams/parser.py)",
            "`HybridCache` in peft_model.py of PEFT 0.16.0 and 0.17.1, and in transformers 4.57.6, not 5.0.0",
            "TRL issues 2275 (0.11.4 with transformers 4.46) and 2445 (0.12.1 with 4.47)",
        ),
    ),
    bad=Example(
        {"requirements.txt": "axolotl==0.19.0\ntrl==1.16.0\n", "a.yml": "base_model: a/b\n"}, says="wants trl==1.9.0"
    ),
    good=Example({"requirements.txt": "axolotl==0.19.0\ntrl==1.9.0\n", "a.yml": "base_model: a/b\n"}),
    also_bad=(
        Example(
            {"train.py": "from peft import prepare_model_for_int8_training\n", "requirements.txt": "peft==0.13.2\n"},
            says="is gone from peft 0.10",
        ),
    ),
)
