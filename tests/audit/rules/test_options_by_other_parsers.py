"""Settings whose values come from flags of absl, and from flags that a loop adds."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

MAKE = (
    '    args = TrainingArguments("out", bf16=True, optim={value})\n'
    "    Trainer(model=model, args=args, train_dataset=rows).train()\n"
)
ABSL = "from absl import app, flags\nfrom transformers import Trainer, TrainingArguments\n\n"
LOOP = "import argparse\n\nfrom transformers import Trainer, TrainingArguments\n\np = argparse.ArgumentParser()\n"
ADDS = "for name, value in {held}:\n    p.add_argument({flag}, default=value)\na = p.parse_args()\n\n\ndef main():\n"


def absl(define: str, value: str) -> str:
    return f"{ABSL}{define}\n\n\ndef main(_):\n{MAKE.format(value=value)}\n\napp.run(main)\n"


def looped(held: str, flag: str) -> str:
    return f"{LOOP}{ADDS.format(held=held, flag=flag)}{MAKE.format(value='a.optim')}\n\nmain()\n"


PLAIN = 'FLAGS = flags.FLAGS\nflags.DEFINE_string("optim", "{}", "which")'
SCRIPTS = {
    "flags": absl(PLAIN.format("adamw_torch"), "FLAGS.optim"),
    "holder": absl('OPTIM = flags.DEFINE_string("optim", "adamw_torch", "which")', "OPTIM.value"),
    "loop over a dictionary": looped('{"optim": "adamw_torch", "lr": 1e-5}.items()', 'f"--{name}"'),
    "loop over pairs": looped('[("optim", "adamw_torch"), ("lr", 1e-5)]', '"--" + name'),
}


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_default_is_read(tmp_path: Path, text: str) -> None:
    assert "OPT001" in [one.code for one in audited(tmp_path, {"train.py": text}).findings]


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_a_command_gives_another_value(tmp_path: Path, text: str) -> None:
    files = {"train.py": text, "run.sh": "python train.py --optim=adamw_torch_fused\n"}
    assert "OPT001" not in [one.code for one in audited(tmp_path, files).findings]


def test_a_flag_that_cannot_be_followed_is_not_known(tmp_path: Path) -> None:
    text = looped("load_defaults()", 'f"--{name}"')
    assert "OPT001" not in [one.code for one in audited(tmp_path, {"train.py": text}).findings]
