"""Promise: what a file beside the script says of its command line counts, and what a document asks for in vain is found."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from dynotune.audit.finding import Finding
from tests.audit.made_up import audited

ARGS = (
    "import argparse\n\n\ndef parse_args():\n    p = argparse.ArgumentParser()\n    p.add_argument('--lr', type=float)\n"
    "    p.add_argument('--fp16', action='store_true')\n    return p.parse_args()\n"
)
BUILD = ARGS.replace("p.parse_args()", "p").replace("parse_args", "build")
KNOWN = ARGS.replace("return p.parse_args()", "args, rest = p.parse_known_args()\n    use(rest)\n    return args")
MORE = "from lib import more\n" + ARGS.replace("    return", "    more(p)\n    return")
USES = "args = {}\nprint(args.lr, args.fp16)\n"
ADDS = "import argparse\nfrom args import add\np = argparse.ArgumentParser()\np.add_argument('--lr')\nadd(p)\n"
ABSL = (
    "from absl import app, flags\nFLAGS = flags.FLAGS\nflags.DEFINE_float('lr', 1e-4, '')\n"
    "flags.DEFINE_bool('bf16', False, '')\n\n\ndef main(_):\n    print(FLAGS.lr, FLAGS.bf16)\n\n\napp.run(main)\n"
)
RUN = {"run.sh": "python train.py --lr 1e-4 --use_fp16\n"}
STARTS = {
    "run.sh": "python train.py --lr 1e-4\n",
    "args.py": ARGS,
    "train.py": "from args import parse_args\n" + USES.format("parse_args()"),
}
JSON = '{{"model": "Qwen/Qwen2.5-0.5B", "attn": "{}", "output_dir": "o", "packing": true, "bf16": true}}'
PARSED = (
    "import sys\nfrom dataclasses import dataclass\nfrom transformers import HfArgumentParser\n"
    "from trl import SFTConfig, SFTTrainer\n\n\n@dataclass\nclass Own:\n    model: str = 'gpt2'\n    attn: str = 'sdpa'\n\n"
    "own, args = HfArgumentParser((Own, SFTConfig)).parse_json_file(sys.argv[1])\n"
    "args.model_init_kwargs = {'attn_implementation': own.attn}\n"
    "SFTTrainer(model=own.model, args=args, train_dataset=rows).train()\n"
)
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {}\nmixed_precision: bf16\nnum_processes: 4\n"
LAUNCHED = {
    "run.sh": "accelerate launch --config_file ddp.yaml train.py\n",
    "train.py": "from accelerate import Accelerator\nAccelerator()\n",
    "ddp.yaml": ACCELERATE.format("MULTI_GPU"),
    "fsdp.yaml": ACCELERATE.format("FSDP"),
}
LLAMA = {
    "run.sh": "llamafactory-cli train sft.yaml max_samples=500\n",
    "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: d\n"
    "template: qwen\noutput_dir: o\n",
}


def found_in(folder: Path, files: dict[str, str], code: str) -> Sequence[Finding]:
    return audited(folder, files, select=[code]).findings


@pytest.mark.parametrize(
    "files",
    [
        {"args.py": ARGS, "train.py": "from args import parse_args\n" + USES.format("parse_args()")},
        {"args.py": ARGS, "train.py": "from args import parse_args as get\n" + USES.format("get()")},
        {"options.py": ARGS, "train.py": "import options\n" + USES.format("options.parse_args()")},
        {"args.py": BUILD, "train.py": "from args import build\n" + USES.format("build().parse_args()")},
        {
            "lib/__init__.py": "from .args import parse_args\n",
            "lib/args.py": ARGS,
            "train.py": "from lib import parse_args\n" + USES.format("parse_args()"),
        },
        {
            "args.py": "def add(p):\n    p.add_argument('--fp16', action='store_true')\n",
            "train.py": ADDS + USES.format("p.parse_args()"),
        },
        {"train.py": ABSL},
    ],
)
def test_a_parser_of_another_file_refuses(tmp_path: Path, files: dict[str, str]) -> None:
    assert any("`--use_fp16`" in one.message for one in found_in(tmp_path, {**RUN, **files}, "CFG008"))


@pytest.mark.parametrize(
    "files",
    [
        {"args.py": ARGS.replace("--fp16", "--use_fp16"), "train.py": "from args import parse_args\nparse_args()\n"},
        {"args.py": KNOWN, "train.py": "from args import parse_args\nparse_args()\n"},
        {"args.py": MORE, "train.py": "from args import parse_args\nparse_args()\n"},
        {"train.py": ABSL.replace("bf16", "use_fp16")},
        {"args.py": ARGS + "def seed():\n    pass\n", "train.py": "from args import seed\nseed()\n"},
    ],
)
def test_a_parser_that_takes_the_flag_or_may_take_it_does_not(tmp_path: Path, files: dict[str, str]) -> None:
    assert not found_in(tmp_path, {**RUN, **files}, "CFG008")


def test_own_fields_come_from_the_file_that_the_command_names(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py c.json\n", "train.py": PARSED, "c.json": JSON.format("eager")}
    (found,) = found_in(tmp_path, files, "ATT004")
    assert str(found.place).startswith("c.json")


@pytest.mark.parametrize(
    "asks", ["./run.sh full  # all weights", "bash run.sh 7b", "sbatch run.sh 7b", "LR=1 bash run.sh"]
)
def test_what_a_document_gives_a_launcher_in_vain(tmp_path: Path, asks: str) -> None:
    assert found_in(tmp_path, {**STARTS, "README.md": f"# x\n\n    {asks}\n"}, "CFG009")


@pytest.mark.parametrize(
    "text", ["    ./run.sh > log 2>&1\n", "Use ./run.sh on a node, or `./run.sh`.\n", "    WANDB_MODE=x ./run.sh\n"]
)
def test_a_launcher_that_is_given_nothing(tmp_path: Path, text: str) -> None:
    assert not found_in(tmp_path, {**STARTS, "README.md": f"# x\n\n{text}"}, "CFG009")


def test_a_variable_that_the_launcher_sets_anew(tmp_path: Path) -> None:
    readme = {"README.md": "# x\n\n    RATE=1e-3 bash run.sh\n"}
    anew = {**STARTS, "run.sh": "RATE=1e-4\npython train.py --lr $RATE\n", **readme}
    kept = {**STARTS, "run.sh": "RATE=${RATE:-1e-4}\npython train.py --lr $RATE\n", **readme}
    assert found_in(tmp_path / "a", anew, "CFG009")
    assert not found_in(tmp_path / "b", kept, "CFG009")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Training shards the model with FSDP (see `fsdp.yaml`).", True),
        ("On larger models use `fsdp.yaml` instead.", False),
        ("Training shards the model:\n\n    accelerate launch --config_file fsdp.yaml train.py\n", False),
    ],
)
def test_a_launchers_file_that_is_described(tmp_path: Path, text: str, says: bool) -> None:
    found = found_in(tmp_path, {**LAUNCHED, "README.md": text}, "CFG010")
    assert any("training is as" in one.message for one in found) is says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("The job trains two epochs over the full set and goes on when it is requeued.", True),
        ("To train on the full set, take `max_samples` out.", False),
        ("The full set is published elsewhere.", False),
    ],
)
def test_all_rows_that_are_a_part(tmp_path: Path, text: str, says: bool) -> None:
    found = found_in(tmp_path, {**LLAMA, "README.md": text}, "CFG011")
    assert any("trains on a part" in one.message for one in found) is says
