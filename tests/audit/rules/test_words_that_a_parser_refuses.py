"""Promise: words behind flags that a parser knows are said where it stops at them or turns them round, and no others."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ALONE = "import argparse\np = argparse.ArgumentParser()\n{}args = p.parse_args()\nprint(args)\n"
RICH = ALONE.format(
    "p.add_argument('--model', required=True)\np.add_argument('--bf16', action='store_true')\n"
    "p.add_argument('--targets', nargs='+')\np.add_argument('--betas', type=float, nargs=2)\n"
    "p.add_argument('--precision', choices=['fp16', 'bf16'])\np.add_argument('--steps', '-s', type=int)\n"
    "p.add_argument('--flag', action=argparse.BooleanOptionalAction)\np.add_argument('--packing', type=bool)\n"
    "p.add_argument('--one')\n"
)
PLACES = ALONE.format(
    "p.add_argument('config')\np.add_argument('out', nargs='?')\np.add_argument('--lr', type=float)\n"
)


@pytest.mark.parametrize(
    ("program", "words", "says"),
    [
        (RICH, "--model a --bf16 --targets q k --betas 0.9 0.95 --precision bf16 -s 3 --no-flag --steps -1", ""),
        (RICH, "--model $1 --steps ${STEPS:-10} --targets ${TARGETS}", ""),
        (RICH, '"$@"', ""),
        (RICH, "--help", ""),
        (RICH, "--model a 2>&1 | tee log.txt", ""),
        (RICH, "--model a --bf16 True", "`--bf16` of `train.py` is a switch"),
        (RICH, "--model a --bf16=True", "is a switch and takes no value"),
        (RICH, "--model a --precision bfloat16", "`bf16` or `fp16`, and is given `bfloat16`"),
        (RICH, "--model a --steps 2.5", "takes a whole number"),
        (RICH, "--model a --steps 1e4", "takes a whole number"),
        (RICH, "--model a --betas 0.9 x", "takes a number"),
        (RICH, "--model a --betas 0.9", "needs a value"),
        (RICH, "--steps 3", "`--model` of `train.py` must be given"),
        (RICH, "--model a --one q v", "takes no more than one word, and `v`"),
        (RICH, "--model --steps 3", "needs a value"),
        (PLACES, "a.yaml --lr 1e-4", ""),
        (PLACES, "a.yaml out --lr 1e-4", ""),
        (PLACES, "$CONFIG --lr 1e-4", ""),
        (PLACES, "--lr 1e-4", "`config` of `train.py` must be given"),
        (PLACES, "--config a.yaml", "is given as a word alone"),
    ],
)
def test_words_behind_known_flags(tmp_path: Path, program: str, words: str, says: str) -> None:
    files = {"train.py": program, "run.sh": f"python train.py {words}\n"}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [one.message for one in found if says in one.message] if says else not found


@pytest.mark.parametrize(
    ("words", "says"), [("--packing False", True), ("--packing=0", True), ("--packing True", False), ("", False)]
)
def test_words_that_type_bool_turns_round(tmp_path: Path, words: str, says: bool) -> None:
    files = {"train.py": RICH, "run.sh": f"python train.py --model a {words}\n"}
    found = audited(tmp_path, files, select=("CFG009",)).findings
    assert sum("turns it on" in one.message for one in found) == says


def test_a_launcher_in_python_may_add_words(tmp_path: Path) -> None:
    started = "import subprocess, sys\nsubprocess.run(['python', 'train.py', '--steps', '3'] + sys.argv[1:])\n"
    assert not audited(tmp_path, {"train.py": RICH, "go.py": started}, select=("CFG008",)).findings


RANK = "p.add_argument('--local_rank', type=int)\n"


@pytest.mark.parametrize(
    ("adds", "start", "torch", "says"),
    [
        ("p.add_argument('--lr')\n", "deepspeed", "", True),
        ("p.add_argument('--lr')\n", "deepspeed --no_local_rank", "", False),
        (RANK, "deepspeed", "", False),
        (RANK, "python -m torch.distributed.launch --nproc_per_node=2", "", True),
        (RANK, "python -m torch.distributed.launch --nproc_per_node=2", "torch==1.13.1\n", False),
        (RANK, "python -m torch.distributed.launch --nproc_per_node=2 --use_env", "", False),
        (
            "p.add_argument('--local-rank', type=int)\n",
            "python -m torch.distributed.launch --nproc_per_node=2",
            "",
            False,
        ),
        ("p.add_argument('--lr')\n", "torchrun --nproc_per_node=2", "", False),
        ("import deepspeed\np = deepspeed.add_config_arguments(p)\n", "deepspeed", "", False),
    ],
)
def test_the_rank_among_the_words(tmp_path: Path, adds: str, start: str, torch: str, says: bool) -> None:
    files = {"train.py": ALONE.format(adds), "run.sh": f"{start} train.py\n", "requirements.txt": torch}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert ["among the script's words" in one.message for one in found] == [True] * says


LLAMA = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: a\ntemplate: qwen\n"
    "cutoff_len: 1024\noutput_dir: o\nval_size: 0.1\nevaluation_strategy: steps\neval_steps: 10\n"
)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("", True),
        ("llamafactory==0.9.3\ntransformers==4.51.3\n", True),
        ("llamafactory==0.9.3\n", True),
        ("llamafactory==0.9.2\n", False),
        ("llamafactory==0.9.3\ntransformers==4.49.0\n", False),
    ],
)
def test_transformers_keys_under_llama_factory(tmp_path: Path, asked: str, says: bool) -> None:
    files = {"a.yaml": LLAMA, "run.sh": "llamafactory-cli train a.yaml\n", "requirements.txt": asked}
    found = audited(tmp_path, files, select=("CFG002", "CFG005")).findings
    assert [one.code for one in found] == ["CFG002"] * says


HYDRA = """import hydra
@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    print(cfg.lr, cfg.epochs, {})
main()
"""


@pytest.mark.parametrize(
    ("reads", "words", "says"),
    [
        ("cfg.lr", "lr=1e-4", ""),
        ("cfg.lr", "--lr 1e-4", "`--lr` is refused"),
        ("cfg.lr", "--config-name config", ""),
        ("cfg.lr", "-m lr=1e-4,2e-4", ""),
        ("cfg.lr", "+epochs=3", "write it without"),
        ("cfg.lr", "+seed=3", ""),
        ("cfg.batch", "lr=1e-4", "reads `batch`"),
        ("cfg.batch", "+batch=4", ""),
        ("cfg.get('batch', 4)", "lr=1e-4", ""),
        ("cfg.batch if 'batch' in cfg else 1", "lr=1e-4", ""),
    ],
)
def test_words_and_keys_of_hydra(tmp_path: Path, reads: str, words: str, says: str) -> None:
    files = {
        "train.py": HYDRA.format(reads),
        "conf/config.yaml": "lr: 1.0e-5\nepochs: 1\n",
        "run.sh": f"python train.py {words}\n",
    }
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("uses", "says"),
    [
        ("print(cfg['lr'], cfg['train']['epochs'])\n", False),
        ("print(cfg['lr'], cfg['batch'])\n", True),
        ("print(cfg['lr'], cfg['train']['warmup'])\n", True),
        ("cfg.setdefault('batch', 4)\nprint(cfg['lr'], cfg['batch'])\n", False),
        ("if 'batch' in cfg:\n    print(cfg['lr'], cfg['batch'])\n", False),
        ("try:\n    print(cfg['batch'])\nexcept KeyError:\n    print(cfg['lr'])\n", False),
    ],
)
def test_keys_that_a_file_lacks(tmp_path: Path, uses: str, says: bool) -> None:
    files = {
        "train.py": f"import sys, yaml\ncfg = yaml.safe_load(open(sys.argv[1]))\n{uses}",
        "a.yaml": "lr: 1.0e-5\ntrain:\n  epochs: 1\n",
        "run.sh": "python train.py a.yaml\n",
    }
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert ["has no such key" in one.message for one in found] == [True] * says


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("python train.py --one q \\\n  --model path/to/model", ""),
        ("python train.py \\\n  --model YOUR_MODEL \\\n  --steps 3", ""),
        ("python train.py \\\n  --model <a model> \\\n  --steps 3", ""),
        ("python train.py --steps 3 ...", ""),
        ("python train.py \\\n  --model path/to/model \\\n  --steps many", "takes a whole number"),
        ("python train.py --steps 3", "`--model` of `train.py` must be given"),
    ],
)
def test_commands_of_documents_with_words_to_be_filled_in(tmp_path: Path, command: str, says: str) -> None:
    """A word that stands for the reader's own is one, and what only shows a command's form is none (READMEs of PEFT's
    examples). Controls: a word that no reader fills in, a flag that is not there."""
    files = {"train.py": RICH, "README.md": f"# Use\n\n```bash\n{command}\n```\n"}
    found = audited(tmp_path, files, select=("CFG008",)).findings
    assert [one.message for one in found if says in one.message] if says else not found
