"""Promise: encoders have sizes, a model on the CPU and an accumulation that nobody is told are found under any name."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def found(folder: Path, code: str, files: dict[str, str]) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


ACCUMULATES = """import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

{before}
acc = Accelerator({told})
model = AutoModelForCausalLM.from_pretrained("gpt2")
opt = torch.optim.AdamW(model.parameters(), lr=2e-5)
model, opt, loader = acc.prepare(model, opt, loader)
total = len(loader) // {number}
for batch in loader:
    with acc.accumulate(model):
        acc.backward(model(**batch).loss)
        opt.step()
        opt.zero_grad()
"""
CLICK = """import click


@click.command()
@click.option("--accum", default=8)
def main(accum):
    pass
"""


@pytest.mark.parametrize(
    ("before", "number", "says"),
    [
        ("accum = 8", "accum", "`accum: 8`"),
        ('CFG = {"lr": 2e-5, "accum": 8}', 'CFG["accum"]', "`accum: 8`"),
        (CLICK, "accum", "8`"),
        ("acc_steps = 4", "acc_steps", "4`"),
        ("accum = 1", "accum", ""),
        ("accuracy = 8", "accuracy", ""),
    ],
)
def test_accelerate_is_not_told(tmp_path: Path, before: str, number: str, says: str) -> None:
    said = found(tmp_path, "OPT054", {"train.py": ACCUMULATES.format(before=before, number=number, told="")})
    assert (says in said[0]) if says else not said
    right = ACCUMULATES.format(before=before, number=number, told=f"gradient_accumulation_steps={number}")
    assert not found(tmp_path / "right", "OPT054", {"train.py": right})


def test_a_caller_s_number_is_told_first(tmp_path: Path) -> None:
    text = ACCUMULATES.format(before="def fit(accum_steps=4):\n    pass\nfit(accum_steps=16)", number="4", told="")
    (said,) = found(tmp_path, "OPT054", {"train.py": text})
    assert "accum_steps: 16" in said


CLASSIFIES = """from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=8, gradient_checkpointing={on}, bf16=True
)
model = AutoModelForSequenceClassification.from_pretrained("{name}")
data = data.map(lambda row: tokenizer(row["text"], truncation=True, max_length=128), batched=True)
Trainer(model=model, args=args, train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("code", "name", "on", "right"),
    [
        ("MEM001", "google-bert/bert-base-uncased", True, False),
        ("MEM001", "distilbert-base-uncased", True, False),
        ("MEM001", "google-bert/bert-base-uncased", False, True),
        ("MEM001", "someone/my-encoder", True, True),
        ("OPT004", "FacebookAI/roberta-base", False, False),
        ("OPT004", "someone/my-encoder", False, True),
    ],
)
def test_encoders_have_sizes(tmp_path: Path, code: str, name: str, on: bool, right: bool) -> None:
    files = {"train.py": CLASSIFIES.format(name=name, on=on), "README.md": "Trained on one RTX 4090 (24 GB).\n"}
    assert bool(found(tmp_path, code, files)) is not right


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("The training uses about 2 GB of it.", False),
        ("It takes 3 GB on the card.", False),
        ("It needs a card of 24 GB; the model takes 2 GB of disk.", True),
        ("It uses 19 GB of it.", True),
    ],
)
def test_a_document_tells_what_is_in_use(tmp_path: Path, words: str, right: bool) -> None:
    text = CLASSIFIES.format(name="someone/my-encoder", on=True)
    files = {"train.py": text, "README.md": f"Trained on one RTX 4090. {words}\n"}
    assert bool(found(tmp_path, "MEM001", files)) is not right


OWN = """import torch
from torch import nn

{before}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(512, 32000)


{made}
opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
for x, y in loader:
    loss = nn.functional.cross_entropy({called}, y)
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
FLAG = (
    'import argparse\np = argparse.ArgumentParser()\np.add_argument("--device", default="cpu")\nargs = p.parse_args()'
)
CPU = ("", "net = Net()", "net(x)")
TO = ('device = "cpu"', "net = Net().to(device)", "net(x.to(device))")
BY_FLAG = (FLAG, "net = Net().to(args.device)", "net(x.to(args.device))")


@pytest.mark.parametrize(
    ("parts", "readme", "run", "right"),
    [
        (TO, "Runs on an RTX 3090.", "python train.py", False),
        (CPU, "Runs on an RTX 3090.", "python train.py", False),
        (CPU, "A small model.", "python train.py", True),
        (CPU, "Runs on an RTX 3090, or slowly on a CPU.", "python train.py", True),
        (BY_FLAG, "Runs on an RTX 3090.", "CUDA_VISIBLE_DEVICES=0 python train.py", False),
        (BY_FLAG, "Runs on an RTX 3090.", "python train.py --device cuda", True),
        (
            ('device = "cuda" if torch.cuda.is_available() else "cpu"', *TO[1:]),
            "Runs on an RTX 3090.",
            "python train.py",
            True,
        ),
        (
            ('cfg = {"device": "cpu"}\ndevice = cfg["device"]', *TO[1:]),
            "Runs on an RTX 3090.",
            "python train.py",
            False,
        ),
    ],
)
def test_a_model_of_ones_own_stays_on_the_cpu(
    tmp_path: Path, parts: tuple[str, str, str], readme: str, run: str, right: bool
) -> None:
    before, made, called = parts
    script = OWN.format(before=before, made=made, called=called)
    files = {"train.py": script, "README.md": readme + "\n", "run.sh": run + "\n"}
    assert bool(found(tmp_path, "HST004", files)) is not right


DDP = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import {what}

model = {what}.from_pretrained("{name}").to(local)
model = DDP(model, device_ids=[local], find_unused_parameters=True)
opt = torch.optim.AdamW(model.parameters(), lr=2e-5)
for batch in loader:
    model(**batch).loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("what", "name", "right"),
    [
        ("BertForSequenceClassification", "bert-base-uncased", False),
        ("AutoModelForTokenClassification", "FacebookAI/xlm-roberta-base", False),
        ("AutoModel", "bert-base-uncased", True),  # its pooler may be left out
        ("BertForSequenceClassification", "someone/experts", True),
    ],
)
def test_encoders_use_all_their_weights(tmp_path: Path, what: str, name: str, right: bool) -> None:
    assert bool(found(tmp_path, "DST002", {"train.py": DDP.format(what=what, name=name)})) is not right


def test_a_launcher_of_another_file_names_the_machine(tmp_path: Path) -> None:
    long = "model_name_or_path: meta-llama/Meta-Llama-3-8B\ndataset_name: d\nfp16: true\nbf16: false\noutput_dir: o\n"
    slurm = "#!/bin/bash\n#SBATCH --gres=gpu:{}:4\ntrl sft --config short.yaml\n"
    for card, right in (("v100", True), ("a100", False)):
        files = {"long.yaml": long, "short.yaml": long.replace("fp16: true\nbf16: false", "bf16: true")}
        files["run.slurm"] = slurm.format(card)
        said = audited(tmp_path / card, files, select=("PRC008",)).findings
        assert any(one.place.file == "long.yaml" for one in said) is not right


def test_it_can_be_suppressed(tmp_path: Path) -> None:
    text = "# dynotune: ignore-file[OPT054] short\n" + ACCUMULATES.format(before="accum = 8", number="accum", told="")
    assert not found(tmp_path, "OPT054", {"train.py": text})
