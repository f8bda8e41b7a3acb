"""Promise: a variable of a Makefile, or one that a document gives make, is found where no command gets it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d.jsonl\nnum_train_epochs: 3\n"
HEAD = "CONFIG := sft.yaml\n"
RUN = "\ntrain:\n\ttrl sft --config $(CONFIG)\n"
USED = "\ntrain:\n\ttrl sft --config $(CONFIG) --num_train_epochs $(EPOCHS)\n"
QUICK = "Quick check:\n\n    make train EPOCHS=1\n"


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (f"EPOCHS ?= 3\n{HEAD}{RUN}", {}),
        (f"EPOCHS ?= 3\n{HEAD}{RUN}", {"README.md": QUICK}),
        (f"{HEAD}{RUN}", {"README.md": QUICK}),
        (f"{HEAD}{RUN}", {"README.md": "`EPOCHS=1 make train` for a quick look\n"}),
        (f"EPOCHS ?= 3\nexport EPOCHS\n{HEAD}{RUN}", {}),
        (f"EPOCHS ?= 3\n{HEAD}{RUN}\t@echo trained $(EPOCHS) epochs\n", {}),
        (f"EPOCHS ?= 3  # of the paper\n# EPOCHS: how long\n{HEAD}{RUN}", {}),
    ],
)
def test_a_variable_that_no_command_gets_is_said(tmp_path: Path, make: str, more: dict[str, str]) -> None:
    (finding,) = audited(tmp_path, {"sft.yaml": SFT, "Makefile": make, **more}, select=("CFG009",)).findings
    assert "EPOCHS" in finding.message
    assert {place.file for place in (finding.place, *finding.also)} == {"Makefile", *more}


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (f"EPOCHS ?= 3\n{HEAD}{USED}", {"README.md": QUICK}),
        (
            f"EPOCHS ?= 3\nARGS = --num_train_epochs $(EPOCHS)\n{HEAD}\ntrain:\n\ttrl sft --config $(CONFIG) $(ARGS)\n",
            {},
        ),
        (f"EPOCHS ?= 3\n{HEAD}{RUN}ifdef EPOCHS\nX = 1\nendif\n", {}),
        (f"EPOCHS ?= 3\nexport EPOCHS\n{HEAD}{RUN}", {"a.py": "import os\nprint(os.environ['EPOCHS'])\n"}),
        (f"EPOCHS ?= 3\n{HEAD}include rest.mk\n{RUN}", {"rest.mk": "more:\n\ttrl sft --num_train_epochs ${EPOCHS}\n"}),
        (f"EPOCHS ?= 3\n{HEAD}{RUN}\t$(call again,$(N))\n", {}),  # may make names up
        (f"COLOUR ?= red\n{HEAD}{RUN}", {}),  # nothing of a run
        (f"{HEAD}{RUN}", {"README.md": "make train CONFIG=other.yaml, or make sure that EPOCHS=1 is what you want\n"}),
    ],
)
def test_one_that_something_gets_is_not(tmp_path: Path, make: str, more: dict[str, str]) -> None:
    assert not audited(tmp_path, {"sft.yaml": SFT, "Makefile": make, **more}, select=("CFG009",)).findings


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("Makefile", f"DS := zero.json\n{HEAD}{RUN}", True),
        ("Makefile", f"DS := other.json\n{HEAD}{RUN}", False),  # no file of the project
        ("Makefile", f"DS := zero.json\n{HEAD}{RUN}".replace("trl sft", "DS=$(DS) trl sft"), False),
        ("run.sh", "DS=zero.json\ntrl sft --config sft.yaml\n", True),
        ("run.sh", "DS=zero.json\ntrl sft --config sft.yaml --deepspeed $DS\n", False),
    ],
)
def test_a_configuration_that_a_variable_keeps_to_itself(tmp_path: Path, name: str, text: str, found: bool) -> None:
    files = {
        "sft.yaml": SFT,
        "zero.json": '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}',
        name: text,
    }
    assert bool(audited(tmp_path, files, select=("CFG009",)).findings) is found
