"""A module imports an attention's kernels itself: their package is in no list of the project's, or the GPU that the project
names does not run them."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.cards import older_card
from dynotune.audit.facts.job import Job
from dynotune.audit.facts.project import Asked, Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.facts.together import code, connected
from dynotune.audit.finding import AtStake, Effort, Evidence, Finding, Level, Remedy, Risk, Said, Stake

LISTS = frozenset({"torch", "transformers", "trl", "llamafactory", "axolotl"})
"""A file that asks for one of these lists what the training needs."""

_IMAGES = re.compile(
    r"^\s*FROM\s+\S*(nvcr\.io|axolotl|unsloth|llamafactory|llama-factory|ngc)", re.MULTILINE | re.IGNORECASE
)
_PACKAGES: Mapping[str, tuple[str, str, frozenset[str]]] = {
    "flash_attn": ("flash-attn", r"flash[-_]attn", frozenset({"axolotl"})),
    "xformers": ("xformers", r"xformers", frozenset({"axolotl", "unsloth", "unsloth-zoo", "vllm"})),
}
"""By the module: its package, how an installing command names it, and packages that bring it."""

GUARDS = re.compile(
    r"get_device_capability|get_device_properties|is_flash_attn|find_spec\(\s*[\"'](?:flash_attn|xformers)"
    r"|version\(\s*[\"']flash[-_]attn|(?:try|suppress\(\w*Error\)):\s{1,80}(?:import|from) (?:flash_attn|xformers)"
)
"""What looks first whether the kernels are there, or whether the GPU runs them."""


def guarded(job: Job, project: Project) -> bool:
    """The job's program asks first."""
    starts = [one for one in project.scripts if one.file in job.files]
    return any(GUARDS.search(code(one)) for start in starts for one in connected(start, project))


def is_installed(package: str, pattern: str, project: Project) -> bool:
    """By any list, extra, installing command or base image of the project's."""
    if any(package.split("-")[0] in name for one in project.asked for name in (one.name, *one.extras)):
        return True
    told = re.compile(rf"(?:{pattern}(?!\s*:)|kernels-community/)")
    if any((told.search(text) and "install" in text) or _IMAGES.search(text) for text in project.texts.values()):
        return not _only_imported(told, project)
    return any(
        re.search(rf"(?:pip|uv|conda|mamba)\b[^\n]{{0,40}}\binstall\b[^\n]{{0,120}}\b{pattern}\b", text)
        for text in project.documents.values()
    )


def _only_imported(told: re.Pattern[str], project: Project) -> bool:
    """Where a file of Python names it by importing it, and installs something else."""
    others = [text for file, text in project.texts.items() if not file.endswith(".py")]
    return not any((told.search(text) and "install" in text) or _IMAGES.search(text) for text in others)


def kernels_imported(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        for module, node in _imports(script):
            if any(f"{module}/" in one.file or one.file == f"{module}.py" for one in project.scripts):
                continue  # it lies in the project
            program = connected(script, project)
            files = {one.file for one in program}
            job = next((one for one in project.jobs if files & set(one.files)), None)
            if job is None or any(GUARDS.search(code(one)) for one in program):
                continue
            missing = list(_missing(script, module, node, project))
            yield from missing or _of_older_card(script, module, node, job, project)
            break


def _imports(script: Script) -> Iterator[tuple[str, ast.stmt]]:
    """Where the file is loaded, and under no condition."""
    for node in script.tree.body:
        named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            named = [node.module or ""]
        for name in named:
            if name.partition(".")[0] in _PACKAGES:
                yield name.partition(".")[0], node


def _missing(script: Script, module: str, node: ast.stmt, project: Project) -> Iterator[Said]:
    package, pattern, bring = _PACKAGES[module]
    names = {one.name for one in project.asked}
    lists: Sequence[Asked] = [one for one in project.asked if one.name in LISTS]
    if not lists or names & bring or is_installed(package, pattern, project):
        return
    yield Finding(
        f"`{ast.unparse(node)[:70]}` needs the package {package}, which is not among the {len(names)} packages that"
        f" {lists[0].place.file} asks for: the import stops the program.",
        place=place_of(script, node),
        evidence=Evidence(Level.TEXT, {"import": module, "asked for": ", ".join(sorted(names)[:12])}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.OPERATIONAL,
            f"Add `{package}` to {lists[0].place.file}, or call `torch.nn.functional.scaled_dot_product_attention`, which"
            " comes with PyTorch.",
            effort=Effort.MINUTES,
        ),
        also=(lists[0].place,),
    )


def _of_older_card(script: Script, module: str, node: ast.stmt, job: Job, project: Project) -> Iterator[Said]:
    card = older_card(job, project)
    first = project.pinned("flash-attn")
    if module != "flash_attn" or not card or (first is not None and first < (2,)):
        return  # the first release runs on Turing
    calls = [one for one in script.calls if one.name.startswith("flash_attn.")]
    if not calls:
        return
    yield Finding(
        f"`{calls[0].name.rpartition('.')[2]}` on a {card}, which the files name: FlashAttention-2's kernels need Ampere or"
        " newer, and the first step stops.",
        place=calls[0].place,
        evidence=Evidence(Level.TEXT, {"call": calls[0].name, "GPU": card}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            "Call `torch.nn.functional.scaled_dot_product_attention`, which takes a kernel that runs there (its tensors have"
            " the heads before the positions).",
            effort=Effort.MINUTES,
            measure="python -c 'import torch; print(torch.cuda.get_device_capability())'",
        ),
        also=(place_of(script, node),),
    )
