"""Promise: what documents and decorators say of other files, of parts and of other runs is held against no run."""

from pathlib import Path

import pytest

from tests.audit.rules.test_asked_elsewhere import LAUNCHED, LLAMA, STARTS, found_in
from tests.audit.rules.test_masks_hosts_and_options import with_options

SETS = "LR=1e-5\npython train.py --lr $LR\n"
TAKES = "python train.py --lr ${LR:-1e-5}\n"
TWO = {name: text for name, text in STARTS.items() if name != "run.sh"}
PLAIN = "python train.py --lr 1e-4\n"


def fenced(text: str, kind: str = "bash") -> str:
    return f"# x\n\n```{kind}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("readme", "files", "says"),
    [
        (fenced("LR=2e-5 bash b/run.sh"), {**TWO, "a/run.sh": SETS, "b/run.sh": TAKES}, False),
        (fenced("LR=2e-5 bash a/run.sh"), {**TWO, "a/run.sh": SETS, "b/run.sh": TAKES}, True),
        (fenced("bash b/run.sh 2e-5"), {**TWO, "a/run.sh": PLAIN, "b/run.sh": 'python train.py --lr "$1"\n'}, False),
        (fenced("bash a/run.sh 2e-5"), {**TWO, "a/run.sh": PLAIN, "b/run.sh": 'python train.py --lr "$1"\n'}, True),
        (fenced("cd b\nbash run.sh 2e-5"), {**TWO, "a/run.sh": PLAIN}, False),
        (fenced("cd a\nbash run.sh 2e-5"), {**TWO, "a/run.sh": PLAIN}, True),
        (fenced("bash third_party/foo/run.sh 8"), STARTS, False),
        (fenced("cd third_party/foo && bash run.sh 8"), STARTS, False),
        (fenced("./run.sh   training\n./train.py   code", "text"), STARTS, False),
        (fenced("./run.sh training\n./train.py code", "text"), STARTS, False),
        (fenced("./run.sh training\n./train.py code", ""), STARTS, False),
        (fenced("./run.sh 8", ""), STARTS, True),
        (fenced("./run.sh 1 2"), {**STARTS, "run.sh": "for x; do python train.py --lr $x; done\n"}, False),
        (fenced("./run.sh 1 2"), {**STARTS, "run.sh": "[ $# -gt 0 ] && exit\npython train.py --lr 1\n"}, False),
        (fenced("SEED=3 bash run.sh"), STARTS, True),
        (fenced("SEED=3 bash run.sh"), {**STARTS, "e.py": "import os\nos.environ.get('SE' + 'ED')\n"}, False),
        (fenced("SEED=3 bash run.sh"), {**STARTS, "e.py": "import os\nos.environ.get('RANK', 0)\n"}, True),
        (fenced("SEED=3 bash run.sh"), {**STARTS, "e.py": "import os\nos.getenv(f'{p}ED')\n"}, False),
        (fenced("SEED=3 bash run.sh"), {**STARTS, "e.py": "import os\nrun(dict(os.environ))\n"}, False),
        (
            fenced("LR=3 bash run.sh"),
            {
                **STARTS,
                "e.py": "from pydantic_settings import BaseSettings\n\n\nclass S(BaseSettings):\n    lr: float = 1\n",
            },
            False,
        ),
        (fenced("LR=1e-5 bash run.sh"), {**STARTS, "run.sh": SETS}, False),
        (fenced("LR=2e-5 bash run.sh"), {**STARTS, "run.sh": SETS}, True),
    ],
)
def test_what_a_document_asks_of_another_launcher(
    tmp_path: Path, readme: str, files: dict[str, str], says: bool
) -> None:
    assert bool(found_in(tmp_path, {**files, "README.md": readme}, "CFG009")) is says


def test_what_was_not_read_may_use_a_variable(tmp_path: Path) -> None:
    files = {**STARTS, "cfg.ini": "lr=${LR}\n", "README.md": fenced("LR=2e-5 bash run.sh")}
    assert all("that was read" in one.message for one in found_in(tmp_path, files, "CFG009"))


TRAINER = (
    "import argparse\nfrom transformers import Trainer, TrainingArguments\np = argparse.ArgumentParser()\n"
    "p.add_argument('--max_samples', type=int)\na = p.parse_args()\nrows = rows[: a.max_samples]\n"
    "Trainer(model, TrainingArguments('o'), train_dataset=rows).train()\n"
)
LIMITED = {"train.py": TRAINER, "run.sh": "python train.py --max_samples 1000\n"}
CLAIM = "The job trains on the full dataset.\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CLAIM, True),
        ("Training runs over all examples.", True),
        ("It is trained on all 20k rows.", True),
        ("We score the trained model on all questions.", False),
        ("Training pads all examples to one length.", False),
        ("All training examples are formatted with the chat template.", False),
        ("It is checked that all training pairs are in English.", False),
        ("Each epoch logs all examples it sees.", False),
        ("Loss is averaged over all conversations of the job.", False),
        ("Preparing the run takes statistics of the full dataset.", False),
        ("Training shuffles all rows first: 1000 of them are trained on.", False),
        ("The job trains on all 1,000 rows.", False),
        ("Training runs over all 800 rows.", False),
    ],
)
def test_what_is_not_said_of_the_rows_that_are_trained_on(tmp_path: Path, text: str, says: bool) -> None:
    found = found_in(tmp_path, {**LIMITED, "README.md": text}, "CFG011")
    assert any("trains on a part" in one.message for one in found) is says


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (LIMITED, "is 1,000 in every run"),
        ({**LIMITED, "run.sh": LIMITED["run.sh"] * 2 + LIMITED["run.sh"].replace("1", "5")}, "is at most 5,000"),
        ({**LIMITED, "run.sh": "python train.py --max_samples 100000000\n"}, ""),
        ({"run.sh": "python eval.py --max_samples 500\n", "eval.py": TRAINER.partition("Trainer(")[0]}, ""),
        ({**LLAMA, "run.sh": "python train.py --max_samples 1000\npython train.py\n", "train.py": TRAINER}, ""),
    ],
)
def test_the_largest_limit_of_the_runs_that_train(tmp_path: Path, files: dict[str, str], says: str) -> None:
    found = [one.message for one in found_in(tmp_path, {**files, "README.md": CLAIM}, "CFG011")]
    assert any(says in one for one in found) if says else not any("trains on a part" in one for one in found)


FOLDER = {
    "run.sh": LAUNCHED["run.sh"].replace("ddp", "configs/ddp"),
    "train.py": LAUNCHED["train.py"],
    "configs/ddp.yaml": LAUNCHED["ddp.yaml"],
    "configs/fsdp.yaml": LAUNCHED["fsdp.yaml"],
}


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Training uses `configs/fsdp.yaml` to shard the model.", 1),
        ("We train with FSDP (`fsdp.yaml`).", 1),
        ("Training runs as `configs/fsdp.yaml` has it.", 1),
        ("- `configs/fsdp.yaml`: uses FSDP to shard weights\n- `configs/ddp.yaml`: plain DDP\n", 0),
        ("- `configs/fsdp.yaml`: training is sharded\n", 0),
        ("| file | what |\n|---|---|\n| `configs/fsdp.yaml` | training uses FSDP |\n", 0),
        ("```\nconfigs/\n  fsdp.yaml   training is sharded\n```\n", 0),
        ("The 70B model is sharded by `configs/fsdp.yaml`; the 8B by ddp.yaml.", 0),
        ("On the cluster of 8 nodes, training is launched with `fsdp.yaml`.", 0),
        ("The 70B model is sharded by `configs/fsdp.yaml`.", 0),
    ],
)
def test_a_launchers_file_that_a_document_only_lists(tmp_path: Path, text: str, times: int) -> None:
    assert len(found_in(tmp_path, {**FOLDER, "README.md": text}, "CFG010")) == times


CLICK = (
    "import click\n\n\n{}@click.command()\n@click.option('--lr', default=1e-5)\n@click.option('--accum', default=8{})\n"
    "{}def main(lr, accum):\n{}    run(lr)\n"
)
ROW = "from dataclasses import dataclass\n{}\n\n@dataclass\nclass Row:\n    text: str\n    weight: float\n\n\n"


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (CLICK.format("", "", "", ""), "read by no line"),
        (CLICK.format("", "", "", "    print(f'run {accum}')\n"), "is parsed and only shown"),
        (CLICK.format("", "", "", "    run(**click.get_current_context().params)\n"), ""),
        (CLICK.format("", "", "@click.pass_context\n", "    run(dict(ctx.params))\n"), ""),
        (CLICK.format("", "", "", "    run(**vars())\n"), ""),
        (CLICK.format("def fed(f):\n    return lambda **k: f(k['accum'])\n\n\n", "", "@fed\n", ""), ""),
        (CLICK.format("", ", help='Deprecated: has no effect'", "", ""), ""),
        (CLICK.format("", "", "", '    """Trains.\n\n    accum: ignored\n    """\n'), ""),
        (ROW.format("from pyrallis import parse") + "row = parse(Row)\nrun(row.text)", "read by no line"),
        (ROW.format("") + "def parse(line):\n    return Row(*line)\n\n\nrow = parse(Row)\nrun(row.text)", ""),
    ],
)
def test_options_that_are_read_in_other_ways(tmp_path: Path, head: str, says: str) -> None:
    found = [one.message for one in found_in(tmp_path, with_options(head), "CFG017")]
    assert any(says in one for one in found) if says else not found
