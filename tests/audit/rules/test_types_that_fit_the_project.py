"""Promise: what is said of types, references and logits is said in the words of the project's own library and sizes."""

from pathlib import Path

import pytest

from dynotune.audit.finding import Finding
from tests.audit.made_up import audited


def found(folder: Path, code: str, files: dict[str, str]) -> list[Finding]:
    return list(audited(folder, files, select=(code,)).findings)


HYDRA = """import hydra
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    args = TrainingArguments(output_dir=cfg.out, learning_rate=cfg.train.lr, {more})
    model = AutoModelForCausalLM.from_pretrained(cfg.model)
    Trainer(model=model, args=args, train_dataset=data).train()


main()
"""
CONF = "model: Qwen/Qwen2.5-0.5B\nout: runs\ntrain:\n  lr: 3.0e-5\n  bf16: true\n"
PINS = "transformers==4.51.3\n"


@pytest.mark.parametrize(
    ("more", "file", "right"),
    [
        ("", "{}", False),
        ('deepspeed="ds.json"', '{"bf16": {"enabled": "auto"}}', False),
        ('deepspeed="ds.json"', '{"bf16": {"enabled": true}}', True),
        ("bf16=cfg.train.bf16", "{}", True),
    ],
)
def test_a_precision_of_hydra_that_nobody_gets(tmp_path: Path, more: str, file: str, right: bool) -> None:
    files = {"train.py": HYDRA.format(more=more), "conf/config.yaml": CONF, "ds.json": file, "requirements.txt": PINS}
    said = found(tmp_path, "PRC002", files)
    assert bool(said) is not right
    assert right or ("float32" in said[0].message and "TrainingArguments(bf16=...)" in said[0].remedy.text)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("load_in_4bit: true\nuse_peft: true\n", "bnb_4bit_compute_dtype=torch.float16"),
        ("use_peft: true\n", "adapters stay float32"),
        ("", "with weights in float32"),
    ],
)
def test_float16_in_words_that_fit(tmp_path: Path, more: str, says: str) -> None:
    text = "# one Tesla V100\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: d\nbf16: true\n" + more
    result = audited(tmp_path, {"sft.yaml": text}, select=("PRC003",))
    assert [one for one in result.findings if says in one.remedy.text]


PREFERENCES = """from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype="bfloat16")
ref = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B"{typed})
args = DPOConfig(output_dir="out", num_train_epochs=2, bf16=True)
DPOTrainer(model=model, ref_model=ref, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(("typed", "says"), [("", "(6 GiB)"), (', torch_dtype="bfloat16"', "(3 GiB)")])
def test_a_reference_is_as_large_as_its_type(tmp_path: Path, typed: str, says: str) -> None:
    files = {"dpo.py": PREFERENCES.format(typed=typed), "requirements.txt": "transformers==4.51.3\ntrl==0.17.0\n"}
    (said,) = found(tmp_path, "DPO001", files)
    assert says in said.message


PARSED = """from dataclasses import dataclass
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class Data:
    base: str = "Qwen/Qwen2.5-3B-Instruct"


data, cfg = HfArgumentParser((Data, SFTConfig)).parse_yaml_file("sft.yaml")
cfg.model_init_kwargs = {"dtype": "bfloat16"}
SFTTrainer(model=data.base, args=cfg, train_dataset=rows).train()
"""


@pytest.mark.parametrize(("rate", "says"), [("1.0e-5", "learning_rate: 1e-05"), ("3.0e-6", "learning_rate: 3e-06")])
def test_a_file_that_a_parser_is_given_by_name(tmp_path: Path, rate: str, says: str) -> None:
    files = {"sft.py": PARSED, "sft.yaml": f"base: Qwen/Qwen2.5-3B\noutput_dir: o\nbf16: true\nlearning_rate: {rate}\n"}
    files |= {"requirements.txt": "transformers==4.56.2\ntrl==0.23.0\n", "run.sh": "python sft.py\n"}
    (said,) = found(tmp_path, "PRC004", files)
    assert says in said.message


LOSS = """import torch
import torch.nn.functional as F
{imports}

opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
vocab = 50304
for batch in loader:
    logits = model(batch["ids"].cuda())
    loss = F.cross_entropy(logits.float().view(-1, vocab), batch["labels"].flatten())
    loss.backward()
    {step}
    opt.step()
    opt.zero_grad()
"""


def test_logits_of_ones_own_model(tmp_path: Path) -> None:
    (said,) = found(tmp_path, "MEM003", {"train.py": LOSS.format(imports="", step="")})
    assert "labels" not in said.remedy.text
    assert "as much again for gradients" in said.message
    loads = 'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("gpt2")'
    (other,) = found(tmp_path / "other", "MEM003", {"train.py": LOSS.format(imports=loads, step="# -100")})
    assert "labels != -100" in other.remedy.text


DISTILS = """import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("someone/student").cuda()
opt = torch.optim.AdamW(student.parameters(), lr=1e-5)
for batch in loader:
    with torch.no_grad():
        t = teacher(**batch){of}
    s = student(**batch){of}
    loss = F.kl_div(F.log_softmax(s.float(), -1), F.softmax(t.float(), -1), reduction="batchmean")
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


def test_logits_by_another_name(tmp_path: Path) -> None:
    (said,) = found(tmp_path, "MEM003", {"train.py": DISTILS.format(of=".logits")})
    assert "divergence" in said.remedy.text
    assert not found(tmp_path / "other", "MEM003", {"train.py": DISTILS.format(of=".pooler_output")})


LAUNCHED = """import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

acc = Accelerator({given})
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
opt = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, opt, loader = acc.prepare(model, opt, loader)
for batch in loader:
    acc.backward(model(**batch).loss)
    opt.step()
    opt.zero_grad()
"""


def test_a_launcher_without_precision_is_mended_where_it_stands(tmp_path: Path) -> None:
    config = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 4\n"
    )
    files = {"train.py": LAUNCHED.format(given=""), "acc.yaml": config}
    (said,) = found(tmp_path, "PRC006", {**files, "run.sh": "accelerate launch --config_file acc.yaml train.py\n"})
    assert "`mixed_precision: bf16` in `acc.yaml`" in said.remedy.text
    files["train.py"] = LAUNCHED.format(given='mixed_precision="bf16"')
    assert not found(
        tmp_path / "right", "PRC006", {**files, "run.sh": "accelerate launch --config_file acc.yaml train.py\n"}
    )
