"""Promise: what puts a run on the CPU beside its GPU is found in images and in accelerate's own file, and logits that are
made for nothing in files that score or weigh; what is meant, or told to keep few, is left alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def found(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files, select=(code,)).findings]


TRAIN = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out"), train_dataset=rows).train()
"""
IMAGE = (
    "FROM {}\nRUN pip install torch==2.6.0{}\nRUN pip install transformers\nCOPY *.py /app/\nCMD python /app/train.py\n"
)
OF_CPU = " --index-url https://download.pytorch.org/whl/cpu"
OF_CUDA = " --index-url https://download.pytorch.org/whl/cu126"
SBATCH = "#SBATCH --gres=gpu:1\npython train.py\n"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"Dockerfile": IMAGE.format("nvidia/cuda:12.4", OF_CPU), "train.py": TRAIN},
            {"Dockerfile": IMAGE.format("nvidia/cuda:12.4", OF_CUDA), "train.py": TRAIN},
        ),
        (
            {"Dockerfile": IMAGE.format("nvidia/cuda:12.4", OF_CPU), "train.py": TRAIN},
            {"Dockerfile": IMAGE.format("python", OF_CPU), "train.py": TRAIN},
        ),
        (
            {"requirements.txt": "torch==2.6.0+cpu\ntransformers\n", "run.sbatch": SBATCH, "train.py": TRAIN},
            {"requirements-cpu.txt": "torch==2.6.0+cpu\ntransformers\n", "run.sbatch": SBATCH, "train.py": TRAIN},
        ),
    ],
)
def test_builds_for_the_cpu(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert any("build for the CPU" in one for one in found(tmp_path / "wrong", files, "ENV007"))
    assert not any("build for the CPU" in one for one in found(tmp_path / "right", right, "ENV007"))


ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nuse_cpu: {}\n"
RUN = "CUDA_VISIBLE_DEVICES=0 accelerate launch --config_file a.yaml train.py\n"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"run.sh": RUN, "a.yaml": ACCELERATE.format("true"), "train.py": TRAIN},
            {"run.sh": RUN, "a.yaml": ACCELERATE.format("false"), "train.py": TRAIN},
        ),
        (
            {"run.sh": SBATCH.replace("python", "accelerate launch --cpu"), "train.py": TRAIN},
            {"run.sh": "accelerate launch --cpu train.py\n", "train.py": TRAIN},
        ),
    ],
)
def test_launchers_that_ask_for_the_cpu(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert any("accelerate's launcher" in one for one in found(tmp_path / "wrong", files, "HST004"))
    assert not any("accelerate's launcher" in one for one in found(tmp_path / "right", right, "HST004"))


JUDGE = """import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

lm = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B-Instruct").cuda().eval()
with torch.inference_mode():
    for texts in batches:
        enc = tok(texts, return_tensors="pt", padding=True, truncation=True, max_length={}).to("cuda")
        {}
"""
LAST = "last = lm(**enc).logits[:, -1]"
ENTROPY = """import torch


def terms(logits, actions):
    logp = torch.log_softmax(logits.float(), dim=-1)
    return logp.gather(-1, actions[..., None]).squeeze(-1), -(logp.exp() * logp).sum(-1)
"""
POLICY = """import torch
from transformers import AutoModelForCausalLM
from terms import terms

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
for ids in rollouts:
    {}
    loss = -(taken * 2).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
WEIGHS = "taken, entropy = terms(model(ids).logits, ids)"


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (
            {"j.py": JUDGE.format(8192, LAST)},
            {"j.py": JUDGE.format(8192, LAST.replace("**enc", "**enc, logits_to_keep=1"))},
        ),
        ({"j.py": JUDGE.format(8192, LAST)}, {"j.py": JUDGE.format(128, LAST)}),
        ({"j.py": JUDGE.format(8192, LAST)}, {"j.py": JUDGE.format(8192, "every = lm(**enc).logits[:, :-1]")}),
        (
            {"terms.py": ENTROPY, "train.py": POLICY.format(WEIGHS)},
            {"terms.py": ENTROPY, "train.py": POLICY.format("taken = model(ids, labels=ids).loss")},
        ),
    ],
)
def test_logits_that_are_made_for_nothing(tmp_path: Path, files: dict[str, str], right: dict[str, str]) -> None:
    assert found(tmp_path / "wrong", files, "MEM003")
    assert not found(tmp_path / "right", right, "MEM003")
