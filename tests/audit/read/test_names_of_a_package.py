"""Promise: what a package's own file defines is known wherever a module imports it from the package."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{}
args = TrainingArguments(output_dir="out", ddp_find_unused_parameters=True)
Trainer(model=AutoModelForCausalLM.from_pretrained(MODEL), args=args).train()
"""
SIZES = 'MODEL = "Qwen/Qwen2.5-1.5B"\n'
RUN = "torchrun --nproc_per_node 4 -m {}\n"


@pytest.mark.parametrize(
    ("script", "line", "package"),
    [
        ("ward/train.py", "from . import MODEL", "ward/__init__.py"),
        ("ward/train.py", "from ward import MODEL", "ward/__init__.py"),
        ("ward/jobs/train.py", "from .. import MODEL", "ward/__init__.py"),
        ("ward/train.py", "from .sizes import MODEL", "ward/sizes/__init__.py"),
        ("src/ward/train.py", "from . import MODEL", "src/ward/__init__.py"),
    ],
)
def test_a_constant_of_the_package_is_followed(tmp_path: Path, script: str, line: str, package: str) -> None:
    module = script.removeprefix("src/").removesuffix(".py").replace("/", ".")
    files = {script: TRAIN.format(line), package: SIZES, "run.sh": RUN.format(module)}
    project = audited(tmp_path, files, select=("DST002",)).project
    (job,) = (one for one in project.jobs if script in one.files)
    assert job.get("model_name_or_path") == "Qwen/Qwen2.5-1.5B"
    start = next(one for one in project.scripts if one.file == script)
    assert package in [one.file for one in project.imports.reached([start])]


def test_a_package_without_the_name_says_nothing(tmp_path: Path) -> None:
    files = {"ward/train.py": TRAIN.format("from . import MODEL"), "ward/__init__.py": "NAME = 1\n"}
    project = audited(tmp_path, files, select=("DST002",)).project
    assert all(job.get("model_name_or_path") is None for job in project.jobs)


@pytest.mark.parametrize(
    ("kwargs", "fails"),
    [("", True), (", gradient_checkpointing_kwargs={'use_reentrant': False}", False)],
)
def test_ready_twice_is_said_of_the_reentrant_way_alone(tmp_path: Path, kwargs: str, fails: bool) -> None:
    text = TRAIN.format(SIZES).replace("True)", f"True, gradient_checkpointing=True{kwargs})")
    (finding,) = audited(tmp_path, {"train.py": text}, select=("DST002",)).findings
    assert ("marked ready twice" in finding.message) is fails
