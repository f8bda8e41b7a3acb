"""Promise: a text that advises Liger's fused loss is held against the release of TRL that the project trains with."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

NEW, OLD = "transformers==5.23.0\ntrl==1.16.0\n", "transformers==4.52.4\ntrl==0.18.2\n"
DPO = "model_name_or_path: Qwen/Qwen2.5-1.5B\ndataset_name: pairs.jsonl\nbeta: 0.1\nbf16: true\n"
SFT = "model_name_or_path: Qwen/Qwen2.5-1.5B\ndataset_name: rows.jsonl\nmax_length: 2048\nbf16: true\n"
ADVICE = (
    "If you run out of memory, `pip install liger-kernel` and\nset `use_liger_kernel: true`: its fused linear loss means\n"
    "the logits are never materialised.\n"
)


@pytest.mark.parametrize(
    ("pins", "config", "readme", "found"),
    [
        (NEW, ("dpo", DPO), ADVICE, 1),
        (NEW, ("sft", SFT), "Enable Liger for the fused cross-entropy.\n", 1),
        (NEW, ("sft", f"# use_liger_kernel: true saves the logits of long rows\n{SFT}"), "", 1),
        (NEW + "liger-kernel  # fused loss, saves the logits\n", ("sft", SFT), "", 1),
        (OLD, ("dpo", DPO), ADVICE, 0),
        (OLD, ("sft", SFT), ADVICE, 0),
        (NEW, ("sft", SFT), "Set `use_liger_kernel: true` for its norms and rotary kernels.\n", 0),
        (NEW, ("sft", SFT), "Do not install liger-kernel for the logits: TRL has a fused loss of its own.\n", 0),
        (NEW, ("sft", SFT), "TRL switches Liger's fused loss off, so we use its own.\n", 0),
        (NEW + "liger-kernel  # rms norm, rope\n", ("sft", SFT), "", 0),
    ],
)
def test_advice(tmp_path: Path, pins: str, config: tuple[str, str], readme: str, found: int) -> None:
    kind, text = config
    files = {
        "requirements.txt": pins,
        f"{kind}.yaml": text,
        "README.md": readme,
        "run.sh": f"trl {kind} --config {kind}.yaml\n",
    }
    assert len(audited(tmp_path / "a", files, select=("CMP001",)).findings) == found


RUN = """from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser

script, args, model = TrlParser((ScriptArguments, DPOConfig, ModelConfig)).parse_args_and_config()
args.model_init_kwargs = {"dtype": model.dtype}
DPOTrainer(model=model.model_name_or_path, args=args, train_dataset=rows%s).train()
"""


@pytest.mark.parametrize(
    ("more", "keys", "found"),
    [
        ("", "num_train_epochs: 3\n", 1),
        ("", "num_train_epochs: 3\nprecompute_ref_log_probs: true\n", 0),
        (", peft_config=get_peft_config(model)", "num_train_epochs: 1\nuse_peft: true\n", 0),
    ],
)
def test_a_model_that_the_command_line_names(tmp_path: Path, more: str, keys: str, found: int) -> None:
    files = {"train.py": RUN % more, "dpo.yaml": DPO + keys, "run.sh": "python train.py --config dpo.yaml\n"}
    result = audited(tmp_path / "a", {**files, "requirements.txt": NEW}, select=("DPO001",))
    assert len(result.findings) == found
    assert [job.get("model_name_or_path") for job in result.project.jobs] == ["Qwen/Qwen2.5-1.5B"]
