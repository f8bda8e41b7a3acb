"""Promise: models that a pinned release does not know, adapters merged into 4 bits, and losses divided by ranks."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = (
    "from trl import SFTConfig, SFTTrainer\nSFTTrainer(model='{}', args=SFTConfig('out'), train_dataset=rows).train()\n"
)


@pytest.mark.parametrize(
    ("model", "transformers", "says"),
    [
        ("Qwen/Qwen3-1.7B", "4.45.2", "came with 4.51.0"),
        ("google/gemma-3-1b-it", "4.48.3", "came with 4.50.0"),
        ("meta-llama/Llama-3.2-1B", "4.42.4", "came with 4.43.0"),
        ("Qwen/Qwen3-1.7B", "4.51.0", ""),
        ("Qwen/Qwen2.5-0.5B", "4.45.2", ""),
        ("meta-llama/Meta-Llama-3-8B", "4.42.4", ""),
        ("./Qwen3-1.7B", "4.45.2", ""),
        ("me/my-own-model", "4.36.2", ""),
    ],
)
def test_models_of_later_releases(tmp_path: Path, model: str, transformers: str, says: str) -> None:
    files = {"train.py": TRAIN.format(model), "requirements.txt": f"transformers=={transformers}\n"}
    found = audited(tmp_path, files, select=("ENV007",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


MERGE = """from peft import AutoPeftModelForCausalLM, PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
{base}
model = {adapter}
model = model.merge_and_unload()
model.save_pretrained('merged')
"""
FOUR = "base = AutoModelForCausalLM.from_pretrained('a/b', quantization_config=BitsAndBytesConfig(load_in_4bit=True))"


@pytest.mark.parametrize(
    ("base", "adapter", "says"),
    [
        (FOUR, "PeftModel.from_pretrained(base, 'out')", True),
        (
            "base = AutoModelForCausalLM.from_pretrained('a/b', load_in_8bit=True)",
            "PeftModel.from_pretrained(base, 'o')",
            True,
        ),
        ("", "AutoPeftModelForCausalLM.from_pretrained('out', load_in_4bit=True)", True),
        (FOUR, "AutoPeftModelForCausalLM.from_pretrained('out')", False),
        ("base = AutoModelForCausalLM.from_pretrained('a/b')", "PeftModel.from_pretrained(base, 'out')", False),
    ],
)
def test_adapters_merged_into_few_bits(tmp_path: Path, base: str, adapter: str, says: bool) -> None:
    files = {"merge.py": MERGE.format(base=base, adapter=adapter)}
    assert bool(audited(tmp_path, files, select=("LOR008",)).findings) == says


LOOP = """import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
{given}
model = DDP(net)
for x in loader:
    loss = model(x){by}
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("given", "by", "says"),
    [
        ("ws = dist.get_world_size()", " / ws", True),
        ("import os\nn = int(os.environ['WORLD_SIZE'])", " / n", True),
        ("ws = dist.get_world_size()\naccum = 4", " / accum", False),
        ("steps = 64 // dist.get_world_size()", " / steps", False),
    ],
)
def test_losses_divided_by_ranks_of_any_name(tmp_path: Path, given: str, by: str, says: bool) -> None:
    files = {"train.py": LOOP.format(given=given, by=by)}
    assert bool(audited(tmp_path, files, select=("DST050",)).findings) == says
