"""Promise: a key that a call or a launcher's file does not have is said with the name that it has there, written in the call
or in the file that it is given."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_LIT = "import lightning as L\n{}\ntrainer = L.Trainer({})\ntrainer.fit(m)\n"
_TOML = "import tomllib\ncfg = tomllib.load(open('t.toml', 'rb'))\n"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a.py": _LIT.format("", "num_train_epochs=3")}, "Did you mean `max_epochs`"),
        ({"a.py": _LIT.format("", "max_epochs=3, precision='bf16-mixed', devices=2")}, ""),
        (
            {"a.py": _LIT.format(_TOML, "**cfg['trainer']"), "t.toml": "[trainer]\nnum_train_epochs = 3\n"},
            "`max_epochs`",
        ),
        ({"a.py": _LIT.format(_TOML, "**cfg.get('trainer', {})"), "t.toml": "[trainer]\nepochs = 3\n"}, "`max_epochs`"),
        ({"a.py": _LIT.format(_TOML, "**cfg['trainer']"), "t.toml": "[trainer]\nmax_epochs = 3\n"}, ""),
        ({"a.py": _LIT.format(_TOML + "cfg.pop('x')\n", "**cfg"), "t.toml": "epochs = 3\n"}, ""),
        ({"a.py": _LIT.format("", "gpus=2"), "requirements.txt": "lightning==1.9.5\n"}, ""),
        ({"a.py": _LIT.format("", "gpus=2"), "requirements.txt": "lightning==2.4.0\n"}, "`devices`"),
        (
            {"a.py": "from accelerate import Accelerator\na = Accelerator(dispatch_batches=False)\na.prepare(m)\n"},
            "from 1.0 on",
        ),
        (
            {
                "a.py": "from accelerate import Accelerator\na = Accelerator(dispatch_batches=False)\na.prepare(m)\n",
                "requirements.txt": "accelerate==0.34.2\n",
            },
            "",
        ),
        (
            {"a.py": "from accelerate import Accelerator\na = Accelerator(bf16=True)\na.prepare(m)\n"},
            "`mixed_precision`",
        ),
        ({"a.py": "from accelerate import Accelerator\na = Accelerator(mixed_precision='bf16')\na.prepare(m)\n"}, ""),
    ],
)
def test_keys_of_calls(tmp_path: Path, files: dict[str, str], says: str) -> None:
    found = [one.message for one in audited(tmp_path, files, select=("CFG001", "CFG008")).findings]
    assert [says in one for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("gradient_clip", "gradient_clipping"),
        ("max_grad_norm", "gradient_clipping"),
        ("gradient_clipping", ""),
        ("tag", ""),
    ],
)
def test_keys_of_deepspeed(tmp_path: Path, key: str, says: str) -> None:
    files = {
        "ds.json": f'{{"train_micro_batch_size_per_gpu": 8, "{key}": 1.0, "zero_optimization": {{"stage": 2}}}}',
        "a.py": "import deepspeed\nengine, *_ = deepspeed.initialize(model=m, config='ds.json')\nengine.step()\n",
        "run.sh": "deepspeed a.py\n",
    }
    found = [
        one.message
        for one in audited(tmp_path, files, select=("CFG",)).findings
        if "no key of DeepSpeed" in one.message
    ]
    assert [says in one for one in found] == [True] * bool(says)
