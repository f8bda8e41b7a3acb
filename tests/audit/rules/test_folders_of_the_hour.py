"""Promise: a checkpoint that is looked for in a folder with the time in its name is never found, and that is said."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

HF = (
    "import os, sys, time\nfrom datetime import datetime\nfrom transformers import Trainer, TrainingArguments\n"
    "from transformers.trainer_utils import get_last_checkpoint\n{}\n"
    "args = TrainingArguments(output_dir={}, bf16=True)\ntrainer = Trainer(model=m, args=args, train_dataset=rows)\n"
    "trainer.train(resume_from_checkpoint=get_last_checkpoint({}))\n"
)


def places(folder: Path, files: dict[str, str]) -> list[str]:
    return [str(one.place) for one in audited(folder, files, select=("CKP002",)).findings]


@pytest.mark.parametrize(
    ("before", "folder", "looked", "fires"),
    [
        ("out = 'runs/' + time.strftime('%F-%H%M')", "out", "out", True),
        ("out = f'runs/{datetime.now():%F}'", "out", "out", True),
        ("stamp = datetime.now().isoformat()\nout = os.path.join('runs', stamp)", "out", "out", True),
        ("out = f'runs/{datetime.now():%F}'", "out", "args.output_dir", True),
        ("out = 'runs/a'\nstarted = time.time()", "out", "out", False),
        ("out = f'runs/{datetime.now():%F}'\nlast = sys.argv[1]", "out", "last", False),
        ("out = f'runs/{datetime.now():%F}'\nif len(sys.argv) > 1:\n    out = sys.argv[1]", "out", "out", False),
    ],
)
def test_of_a_script(tmp_path: Path, before: str, folder: str, looked: str, fires: bool) -> None:
    text = HF.format(before, folder, looked)
    assert bool(places(tmp_path / "a", {"train.py": text})) is fires
    held = f"# dynotune: ignore-file[CKP002] started again by hand, in the old folder\n{text}"
    assert not places(tmp_path / "b", {"train.py": held})


HYDRA = (
    "import hydra\nfrom hydra.core.hydra_config import HydraConfig\nfrom transformers import Trainer, TrainingArguments\n"
    "from transformers.trainer_utils import get_last_checkpoint\n"
    "@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    out = HydraConfig.get().runtime.output_dir\n    args = TrainingArguments(output_dir=out, seed=cfg.seed)\n"
    "    Trainer(model=m, args=args, train_dataset=rows).train(resume_from_checkpoint=get_last_checkpoint(out))\nmain()\n"
)
CONF = "seed: 1\nhydra:\n  run:\n    dir: outputs/{}\n"


@pytest.mark.parametrize(
    ("named", "command", "fires"),
    [
        ("${now:%Y-%m-%d}/${now:%H-%M-%S}", "python train.py", True),
        ("${now:%F_%T}", "python train.py seed=2", True),
        ("run-${seed}", "python train.py", False),
        ("${now:%F}", "python train.py hydra.run.dir=outputs/a", False),
    ],
)
def test_of_hydra(tmp_path: Path, named: str, command: str, fires: bool) -> None:
    files = {"train.py": HYDRA, "conf/config.yaml": CONF.format(named), "run.sh": f"{command}\n"}
    assert places(tmp_path, files) == ["conf/config.yaml:4"] * fires


@pytest.mark.parametrize(
    ("run", "fires"),
    [
        ("OUT=out/$(date +%F-%H%M)\ntrl sft --config a.yaml --output_dir $OUT --resume_from_checkpoint true\n", True),
        ("trl sft --config a.yaml --resume_from_checkpoint true \\\n  --output_dir out/$(date +%s)\n", True),
        ('OUT="out/$(date +%F)"\ntrl sft --config a.yaml --output_dir "$OUT"\n', False),  # nobody asks it to go on
        ("OUT=${1:-out/$(date +%F)}\ntrl sft --config a.yaml --output_dir $OUT --resume_from_checkpoint true\n", False),
        ("OUT=out/a\ntrl sft --config a.yaml --output_dir $OUT --resume_from_checkpoint true\n", False),
    ],
)
def test_of_a_command(tmp_path: Path, run: str, fires: bool) -> None:
    files = {"run.sh": run, "a.yaml": "model_name_or_path: a/b\ndataset_name: d.jsonl\nbf16: true\n"}
    assert bool(places(tmp_path, files)) is fires


FOUND = """import glob, os, sys, time, uuid
import argparse
import hydra
import torch
{before}

def latest(folder):
    return max(glob.glob(os.path.join(folder, "state-*.pt")), default=None)


{main}
    last = latest({folder})
    if last:
        model.load_state_dict(torch.load(last, weights_only=True))
    for batch in loader:
        model(**batch).loss.backward()
        opt.step()
        opt.zero_grad()
    torch.save({{"model": model.state_dict(), "opt": opt.state_dict()}}, "state.pt")
main()
"""
OF_HYDRA = "@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):"


@pytest.mark.parametrize(
    ("conf", "commands", "readme", "fires"),
    [
        ("run_dir: ${hydra:runtime.output_dir}\n" + CONF.format("${now:%F}/${now:%T}"), "python train.py", "", True),
        ("run_dir: ${hydra:runtime.output_dir}\nseed: 1\n", "python train.py", "", True),
        ("run_dir: runs/${now:%F-%H%M}\nseed: 1\n", "python train.py", "", True),
        ("run_dir: runs/${now:%F-%H%M}\n" + CONF.format("a"), "python train.py", "", True),
        (
            "run_dir: ${hydra:runtime.output_dir}\n" + CONF.format("${now:%F}"),
            "python train.py\ntorchrun train.py hydra.run.dir=outputs/ddp",
            "It picks up where it was.",
            True,
        ),
        (
            "run_dir: ${hydra:runtime.output_dir}\n" + CONF.format("${now:%F}"),
            "python train.py\ntorchrun train.py hydra.run.dir=outputs/ddp",
            "Training.",
            False,
        ),
        ("run_dir: ${hydra:runtime.output_dir}\n" + CONF.format("a-${seed}"), "python train.py", "", False),
        ("run_dir: runs/a\n" + CONF.format("${now:%F}"), "python train.py", "", False),
        ("run_dir: ${hydra:runtime.output_dir}\nseed: 1\n", "python train.py hydra.run.dir=a", "", False),
        ("run_dir: runs/${now:%F}\nseed: 1\n", "python train.py run_dir=runs/a", "", False),
    ],
)
def test_found_by_a_function_of_its_own(tmp_path: Path, conf: str, commands: str, readme: str, fires: bool) -> None:
    train = FOUND.format(before="", main=OF_HYDRA, folder="cfg.run_dir")
    files = {"train.py": train, "conf/config.yaml": conf, "run.sh": f"{commands}\n", "README.md": f"{readme}\n"}
    assert len(places(tmp_path / "a", files)) == fires


OPTION = "ap = argparse.ArgumentParser()\nap.add_argument('--out', default={})\nargs = ap.parse_args()"


@pytest.mark.parametrize(
    ("before", "folder", "command", "fires"),
    [
        ("out = f'runs/{uuid.uuid4()}'", "out", "python train.py", True),
        (OPTION.format("time.strftime('runs/%F-%H%M')"), "args.out", "python train.py", True),
        (OPTION.format("time.strftime('runs/%F-%H%M')"), "args.out", "python train.py --out runs/a", False),
        (OPTION.format("'runs/a'"), "args.out", "python train.py", False),
        ("out = 'runs/a'", "out", "python train.py", False),
    ],
)
def test_folders_of_ones_own(tmp_path: Path, before: str, folder: str, command: str, fires: bool) -> None:
    train = FOUND.format(before=before, main="def main():", folder=folder)
    assert len(places(tmp_path / "a", {"train.py": train, "run.sh": f"{command}\n"})) == fires


JOB = """#!/bin/bash
#SBATCH --time=04:00:00{more}
OUT={out}
trl sft --config a.yaml --output_dir $OUT --resume_from_checkpoint true
"""
SUBMIT = "Jobs end after four hours; submit it again, and it resumes from the last checkpoint.\n"


@pytest.mark.parametrize(
    ("more", "out", "readme", "fires"),
    [
        ("", "runs/$SLURM_JOB_ID", SUBMIT, True),
        ("", "runs/${SLURM_JOBID}", "Resubmit the job: it goes on.\n", True),
        ("\n#SBATCH --requeue", "runs/$SLURM_JOB_ID", SUBMIT, False),
        ("", "runs/$SLURM_JOB_NAME", SUBMIT, False),
        ("", "runs/$SLURM_JOB_ID", "One run takes three hours.\n", False),
    ],
)
def test_of_a_job_that_is_submitted_again(tmp_path: Path, more: str, out: str, readme: str, fires: bool) -> None:
    files = {
        "job.sbatch": JOB.format(more=more, out=out),
        "a.yaml": "model_name_or_path: a/b\ndataset_name: d.jsonl\nbf16: true\n",
        "README.md": readme,
    }
    assert bool(places(tmp_path / "a", files)) is fires
