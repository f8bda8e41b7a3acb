"""Promise: a package that is nothing but another way to compute is said where nothing of the project can take it."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_SCRIPT = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "model = AutoModelForCausalLM.from_pretrained('{}', attn_implementation='sdpa')\n"
    "Trainer(model=model, args=TrainingArguments('out', bf16=True), train_dataset=rows).train()\n"
)
_QWEN, _MAMBA = _SCRIPT.format("Qwen/Qwen2.5-1.5B"), _SCRIPT.format("tiiuae/falcon-mamba-7b")
_CLONE = "FROM a\nRUN git clone https://github.com/NVIDIA/apex && cd apex && pip install -v ./\n"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"requirements.txt": "transformers==4.51.3\nxformers==0.0.29\n", "a.py": _QWEN}, "xformers"),
        ({"requirements.txt": "vllm\nxformers==0.0.29\n", "a.py": _QWEN}, ""),
        ({"requirements.txt": "xformers\n", "a.py": f"import xformers.ops\n{_QWEN}"}, ""),
        ({"requirements.txt": "mamba-ssm\n", "a.py": _QWEN}, "mamba-ssm"),
        ({"requirements.txt": "mamba-ssm\n", "a.py": _MAMBA}, ""),
        ({"README.md": "    pip install causal-conv1d  # faster\n", "a.py": _QWEN}, "causal-conv1d"),
        ({"Dockerfile": _CLONE, "a.py": _QWEN}, "apex"),
        ({"Dockerfile": _CLONE, "a.py": f"from apex.optimizers import FusedAdam\n{_QWEN}"}, ""),
        ({"requirements.txt": "deepspeed  # needed to fit the model\n", "a.py": _QWEN}, "deepspeed"),
        ({"requirements.txt": "deepspeed\n", "a.py": _QWEN}, ""),
        ({"requirements.txt": "deepspeed  # to fit\n", "a.py": _QWEN, "run.sh": "deepspeed a.py\n"}, ""),
        ({"requirements.txt": "hf-transfer\n", "a.py": _QWEN}, "hf-transfer"),
        ({"requirements.txt": "hf-transfer\n", "a.py": _QWEN, "run.sh": "export HF_HUB_ENABLE_HF_TRANSFER=1\n"}, ""),
    ],
)
def test_packages_that_nothing_takes(tmp_path: Path, files: dict[str, str], named: str) -> None:
    found = [
        one for one in audited(tmp_path, files, select=("CFG011",)).findings if "nothing of this project" in one.message
    ]
    assert [one.evidence.facts["installed"] for one in found] == ([named] if named else [])
