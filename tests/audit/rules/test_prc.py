"""Promise: rules on precision find what cannot run, or runs otherwise than it was asked for."""

import ast
from pathlib import Path
from typing import Any

import pytest

from dynotune.audit.facts.job import Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.setting import Setting
from dynotune.audit.finding import AtStake, Risk
from dynotune.audit.place import Place
from tests.audit.made_up import audited
from tests.audit.rules.facts import UNKNOWN, Default, a_job, a_machine, findings, not_checked
from tests.audit.rules.scripts import said


def test_two_precisions() -> None:
    assert findings("CFG013", a_job(bf16=True, fp16=True))
    assert findings("CFG013", a_job(bf16=Default(True), fp16=True))
    for other in ({"fp16": False}, {"fp16": UNKNOWN}, {}):
        values: dict[str, Any] = {"bf16": True} | other
        assert not findings("CFG013", a_job(**values))


def test_bfloat16_on_an_old_card() -> None:
    t4 = a_machine(capability="7.5")
    for asked in ({"bf16": Default(True)}, {"dtype": "bfloat16"}, {"mixed_precision": "bf16"}):
        job = a_job(**asked)
        (found,) = findings("PRC003", job, Project(".", [job], environment=t4))
        assert "7.5" in found.message
    for machine, values in (
        (a_machine(capability="8.0"), {"bf16": True}),
        (a_machine(capability="12.0"), {"bf16": True}),
        (t4, {"fp16": True, "bf16": False}),
        (a_machine(gpus=0), {"bf16": True}),
    ):
        job = a_job(**values)
        assert not findings("PRC003", job, Project(".", [job], environment=machine))


_T4 = """import torch
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", {})
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize("asked", ["bf16=True", "bf16=True, fp16=False"])
@pytest.mark.parametrize("readme", ["Runs on the free Colab T4.", "Two RTX 2080 Ti.", "One Tesla V100 (16 GB)"])
def test_bfloat16_on_an_old_card_that_files_name(tmp_path: Path, asked: str, readme: str) -> None:
    found = audited(tmp_path, {"train.py": _T4.format(asked), "README.md": readme}, select=["PRC003"]).findings
    assert [one.place.file for one in found] == ["train.py"]


@pytest.mark.parametrize(
    ("asked", "readme"),
    [
        ("fp16=True", "Runs on the free Colab T4."),
        ("bf16=torch.cuda.is_bf16_supported()", "Runs on the free Colab T4."),
        ("bf16=True", "One A100. (A T4 is too small.)"),
        ("bf16=True", "Not for a T4."),
        ("bf16=True", "One RTX 4090."),
    ],
)
def test_bfloat16_where_it_is_or_may_be(tmp_path: Path, asked: str, readme: str) -> None:
    assert not audited(tmp_path, {"train.py": _T4.format(asked), "README.md": readme}, select=["PRC003"]).findings


_CASTS = """import torch

torch.manual_seed(0)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for x, y in loader:
    with torch.autocast("cuda", dtype={}):
        loss = model(x.cuda(), y.cuda())
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("dtype", "readme", "found"),
    [
        ("torch.bfloat16", "One Tesla T4.", 1),
        ("torch.float16", "One Tesla T4.", 0),
        ("torch.bfloat16", "One A100.", 0),
        ("torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16", "One Tesla T4.", 0),
    ],
)
def test_a_cast_to_bfloat16_on_an_old_card(tmp_path: Path, dtype: str, readme: str, found: int) -> None:
    files = {"train.py": _CASTS.format(dtype), "README.md": readme}
    assert len(audited(tmp_path, files, select=["PRC003"]).findings) == found


WITHOUT: dict[str, Any] = {
    "dtype": "bfloat16",
    "use_peft": Default(False),
    "learning_rate": 1e-5,
    "optim": Default("adamw_torch_fused"),
    "num_processes": 1,
}


def test_weights_without_masters() -> None:
    (found,) = findings("PRC004", a_job(**WITHOUT))
    assert "80%" in found.message
    assert found.stake.what is AtStake.CHOICE


@pytest.mark.parametrize(
    "other",
    [
        {"use_peft": True},
        {"use_peft": UNKNOWN},
        {"dtype": "float32"},
        {"learning_rate": 1e-4},
        {"learning_rate": UNKNOWN},
        {"optim": "adafactor"},
        {"deepspeed": "ds.json"},
        {"distributed_type": "FSDP"},
    ],
)
def test_weights_that_move(other: dict[str, Any]) -> None:
    assert not findings("PRC004", a_job(**WITHOUT | other))
    assert not findings("PRC004", a_job(Trainer.DYNOTUNE, **WITHOUT))


def test_masters_that_a_launcher_may_keep_are_not_judged() -> None:
    alone = {name: value for name, value in WITHOUT.items() if name != "num_processes"}
    assert not findings("PRC004", a_job(**alone))
    assert not_checked("PRC004", a_job(**alone))
    assert findings("PRC004", a_job(Trainer.LLAMA_FACTORY, **alone))


HALF: dict[str, Any] = {"dtype": "float16", "use_peft": False, "fp16": True, "bf16": False}


def test_float16_weights() -> None:
    (found,) = findings("PRC004", a_job(**HALF))
    assert found.stake.what is AtStake.STOPS
    (found,) = findings("PRC004", a_job(**HALF | {"fp16": False}))
    assert found.stake.what is AtStake.RESULT
    for other in (
        {"use_peft": True},
        {"dtype": "float32"},
        {"fp16": UNKNOWN},
        {"deepspeed": "ds.json"},
        {"use_cpu": True},
    ):
        assert not findings("PRC004", a_job(**HALF | other))


SLOW: dict[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-0.5B",
    "dtype": Default("float32"),
    "bf16": Default(False),
    "fp16": Default(False),
}


def test_everything_in_float32() -> None:
    (found,) = findings("PRC006", a_job(**SLOW))
    assert found.remedy.changes[0].value is True


@pytest.mark.parametrize(
    "other",
    [
        {"bf16": True},
        {"fp16": True},
        {"bf16": UNKNOWN},
        {"dtype": "bfloat16"},
        {"dtype": UNKNOWN},
        {"mixed_precision": "bf16"},
        {"tf32": True},
        {"use_cpu": True},
        {"load_in_4bit": True},
        {"model_name_or_path": "my-own-model"},
    ],
)
def test_not_everything_in_float32(other: dict[str, Any]) -> None:
    assert not findings("PRC006", a_job(**SLOW | other))


def test_a_launcher_whose_precision_is_lost() -> None:
    assert findings("PRC002", a_job(mixed_precision="fp16", bf16=Default(True)))
    for values in (
        {"mixed_precision": "bf16", "bf16": True},
        {"mixed_precision": "no", "bf16": True},
        {"mixed_precision": "bf16", "bf16": False, "fp16": False},
        {"mixed_precision": UNKNOWN, "bf16": True},
        {"mixed_precision": Default("fp16"), "bf16": True},
    ):
        assert not findings("PRC002", a_job(**values))
    assert not findings("PRC002", a_job(Trainer.TORCH, mixed_precision="fp16", bf16=True))


def script(name: Any = "transformers.BitsAndBytesConfig", **arguments: Any) -> Script:
    given = {key: Setting(key, value, Place("t.py", 3)) for key, value in arguments.items()}
    load = {"attn_implementation": Setting("attn_implementation", "flash_attention_2", Place("t.py", 5))}
    calls = [
        Call(name, given, Place("t.py", 3)),
        Call("transformers.AutoModel.from_pretrained", load, Place("t.py", 5)),
    ]
    return Script("t.py", "", ast.parse(""), calls, {}, {})


def test_four_bits_that_compute_in_float32() -> None:
    (found,) = findings("PRC006", script(load_in_4bit=True))
    assert "flash_attention_2 does not take" in found.message
    for near in (
        script(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16"),
        script(load_in_4bit=False),
        script(load_in_4bit=UNKNOWN),
        script(load_in_8bit=True),
        script(**{"load_in_4bit": True, "**": UNKNOWN}),
        script("mine.BitsAndBytesConfig", load_in_4bit=True),
    ):
        assert not findings("PRC006", near)


LOOP = """
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B"{}).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FLOAT32 = ", dtype=torch.float32"


def test_a_loop_in_float32(tmp_path: Path) -> None:
    (found,) = said("PRC006", tmp_path, LOOP.format(FLOAT32))
    assert found.remedy.risk is Risk.NUMERIC
    assert found.place.line == 4


def test_a_loop_that_says_nothing_of_types(tmp_path: Path) -> None:
    """float32 before transformers 5, bfloat16 without masters since."""
    (found,) = said("PRC006", tmp_path, LOOP.format(""))
    assert "transformers before 5" in found.message


@pytest.mark.parametrize(
    "text",
    [
        LOOP.format("").replace("Qwen/Qwen", "our/Own"),  # nobody knows in which type it was published
        LOOP.format("") + "import peft\nmodel = peft.get_peft_model(model, peft.LoraConfig())\n",
        LOOP.format(", dtype=torch.bfloat16"),
        LOOP.format(FLOAT32).replace(".cuda()", ""),
        LOOP.format(FLOAT32).replace("loss =", "with torch.autocast('cuda'): loss ="),
        LOOP.format(FLOAT32) + "torch.backends.cuda.matmul.allow_tf32 = True\n",
        LOOP.format(FLOAT32) + "from accelerate import Accelerator\n",
    ],
)
def test_a_loop_that_may_compute_in_another_type(text: str, tmp_path: Path) -> None:
    assert not said("PRC006", tmp_path, text)


_LOOP = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\n"
    "accelerator = Accelerator({})\nmodel = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B')\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
    "for batch in loader:\n    accelerator.backward(model(**batch.to('cuda')).loss)\n    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
)
_OF_ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 2\n"
    "mixed_precision: {}\n"
)


@pytest.mark.parametrize(
    ("asked", "command", "given", "at"),
    [
        ("'no'", "--config_file a.yaml", "", "a.yaml"),
        ("no", "--config_file=a.yaml", "", "a.yaml"),
        ("'no'", "--multi_gpu", "", "a.yaml"),  # accelerate's only file, which its default may be
        ("bf16", "--config_file a.yaml", "", ""),
        ("'no'", "--config_file a.yaml --mixed_precision bf16", "", ""),
        ("'no'", "--config_file a.yaml", "mixed_precision='bf16'", ""),
    ],
)
def test_accelerates_file_says_no(tmp_path: Path, asked: str, command: str, given: str, at: str) -> None:
    run = f"accelerate launch {command} train.py\n"
    found = said("PRC006", tmp_path, _LOOP.format(given), run__sh=run, a__yaml=_OF_ACCELERATE.format(asked))
    assert [one.place.file for one in found] == [at] * bool(at)
    assert not found or "mixed_precision" in found[0].message
