"""Promise: a fault that one trainer shows is found in the shapes that others have it in: launchers that count,
trainers' own arguments, keys of another class, files that only a document names."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

ENCODE = "from net import rows\n"
HF = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B'), args, train_dataset=rows).train()
"""
COUNTS = "GLOBAL_BATCH=256\nMICRO=4\n{sum}\n{start} train.py --per_device_train_batch_size $MICRO {flag}\n"
PASSED = "--gradient_accumulation_steps $ACCUM"


@pytest.mark.parametrize(
    ("sum_", "start", "flag", "says"),
    [
        ("ACCUM=$((GLOBAL_BATCH / MICRO))", "torchrun --nproc_per_node=8", PASSED, True),
        ("ACCUM=$(( $GLOBAL_BATCH / $MICRO ))", "accelerate launch --num_processes 8", PASSED, True),
        (
            "export GRAD_ACC=$((256 / MICRO))",
            "torchrun --nproc_per_node 8",
            "--gradient_accumulation_steps $GRAD_ACC",
            True,
        ),
        ("ACCUM=$(expr $GLOBAL_BATCH / $MICRO)", "deepspeed --num_gpus 8", PASSED, True),
        ("", "torchrun --nproc_per_node 8", "--gradient_accumulation_steps $((GLOBAL_BATCH / MICRO))", True),
        ("ACCUM=$((GLOBAL_BATCH / MICRO))", "torchrun --nproc_per_node=1", PASSED, False),
        ("ACCUM=$((GLOBAL_BATCH / MICRO))", "python", PASSED, False),
        ("ACCUM=$((GLOBAL_BATCH / MICRO / 8))", "torchrun --nproc_per_node=8", PASSED, False),
        ("ACCUM=$((GLOBAL_BATCH / (MICRO * 8)))", "torchrun --nproc_per_node=8", PASSED, False),
        (
            "NUM_GPUS=8\nEACH=$((GLOBAL_BATCH / NUM_GPUS))\nACCUM=$((EACH / MICRO))",
            "torchrun --nproc_per_node=8",
            PASSED,
            False,
        ),
        ("ACCUM=$((GLOBAL_BATCH / MICRO))", "torchrun --nproc_per_node=8", "", False),
        ("# ACCUM=$((GLOBAL_BATCH / MICRO))", "torchrun --nproc_per_node=8", PASSED, False),
    ],
)
def test_totals_that_each_process_comes_to(tmp_path: Path, sum_: str, start: str, flag: str, says: bool) -> None:
    files = {"train.py": HF, "run.sh": COUNTS.format(sum=sum_, start=start, flag=flag)}
    found = audited(tmp_path, files, select=("DST052",)).findings
    assert ["8 times the rows" in one.message for one in found] == [True] * says


def test_totals_that_the_script_divides(tmp_path: Path) -> None:
    own = "import os\naccumulation = args.gradient_accumulation_steps // int(os.environ['WORLD_SIZE'])\n" + HF
    shell = COUNTS.format(sum="ACCUM=$((GLOBAL_BATCH / MICRO))", start="torchrun --nproc_per_node=8", flag=PASSED)
    found = audited(tmp_path, {"train.py": own, "run.sh": shell}, select=("DST052",)).findings
    assert not any("8 times the rows" in one.message for one in found)


OF_PAIRS = """from trl import DPOConfig, DPOTrainer
DPOTrainer(model='Qwen/Qwen2.5-0.5B', args=DPOConfig('out'{given}), {more}train_dataset=rows).train()
"""
OF_TEXTS = """from trl import SFTConfig, SFTTrainer
SFTTrainer(model='Qwen/Qwen2.5-0.5B', args=SFTConfig('out'), {more}train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("text", "more", "trl", "says"),
    [
        (OF_PAIRS, "beta=0.1, ", "0.19.1", "gone since trl 0.13"),
        (OF_PAIRS, "max_prompt_length=512, ", "0.13.0", "gone since trl 0.13"),
        (OF_TEXTS, "dataset_text_field='text', ", "0.15.2", "gone since trl 0.13"),
        (OF_TEXTS, "model_init_kwargs={}, ", "0.20.0", "gone since trl 0.13"),
        (OF_PAIRS, "beta=0.1, ", "0.12.2", ""),
        (OF_TEXTS, "dataset_text_field='text', ", "0.11.4", ""),
        (OF_TEXTS, "formatting_func=print, ", "0.19.1", ""),
    ],
)
def test_arguments_that_trainers_no_longer_take(tmp_path: Path, text: str, more: str, trl: str, says: str) -> None:
    files = {"train.py": text.format(more=more, given=""), "requirements.txt": f"trl=={trl}\n"}
    found = audited(tmp_path, files, select=("CFG002",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (", max_seq_length=512", "here it is `max_length`"),
        (", packing=True", "a key of `SFTConfig`"),
        (", dataset_text_field='text'", "a key of `SFTConfig`"),
        (", max_length=512", ""),
        (", padding_free=True", ""),
    ],
)
def test_keys_of_rows_given_to_pairs(tmp_path: Path, given: str, says: str) -> None:
    files = {"train.py": OF_PAIRS.format(given=given, more=""), "requirements.txt": "trl==0.19.1\n"}
    found = audited(tmp_path, files, select=("CFG001",)).findings
    assert [says in one.message for one in found] == [True] * bool(says)


SHARDED = '{"zero_optimization": {"stage": %d}}'
DESCRIBED = "Training on eight cards.\n\n{}\n"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("`ds/zero1.json` is the DeepSpeed configuration we train with.", True),
        ("Training is sharded as set in `ds/zero1.json`.", True),
        ("`ds/zero3.json` is the configuration we train with.", False),
        ("We train with `ds/zero3.json`; `ds/zero1.json` is for one card.", False),
        ("To use less memory train with `ds/zero1.json`.", False),
    ],
)
def test_deepspeed_files_that_only_a_document_names(tmp_path: Path, told: str, says: bool) -> None:
    files = {
        "train.py": HF,
        "ds/zero1.json": SHARDED % 1,
        "ds/zero3.json": SHARDED % 3,
        "run.sh": "torchrun --nproc_per_node 8 train.py --deepspeed ds/zero3.json\n",
        "README.md": DESCRIBED.format(told),
    }
    found = audited(tmp_path, files, select=("CFG010",)).findings
    assert any("gives DeepSpeed `ds/zero3.json`" in one.message for one in found) == says


@pytest.mark.parametrize(
    ("precision", "sharded", "says"),
    [
        ("fp16: true", '"bf16": {"enabled": true}', True),
        ("bf16: true", '"fp16": {"enabled": true}', True),
        ("bf16: true", '"bf16": {"enabled": true}', False),
        ("bf16: true", '"bf16": {"enabled": "auto"}', False),
        ("pure_bf16: true", '"bf16": {"enabled": true}', False),
    ],
)
def test_precisions_of_deepspeed(tmp_path: Path, precision: str, sharded: str, says: bool) -> None:
    config = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: mine\n"
        f"template: qwen\noutput_dir: out\ndeepspeed: ds.json\n{precision}\n"
    )
    files = {"sft.yaml": config, "ds.json": f'{{"zero_optimization": {{"stage": 2}}, {sharded}}}'}
    assert bool(audited(tmp_path, files, select=("CFG012",)).findings) == says


PATCHED = """from liger_kernel.transformers import apply_liger_kernel_to_qwen2
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{patch}
model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-0.5B')
model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', 'lm_head']))
Trainer(model, TrainingArguments('out'), train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("apply_liger_kernel_to_qwen2()", True),
        ("apply_liger_kernel_to_qwen2(fused_linear_cross_entropy=False)", False),
        ("print('plain')", False),
    ],
)
def test_a_head_under_a_patched_loss(tmp_path: Path, patch: str, says: bool) -> None:
    found = audited(tmp_path, {"train.py": PATCHED.format(patch=patch)}, select=("LOR003",)).findings
    assert bool(found) == says


NET = """import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self, vocab, dim, depth, ctx, ckpt=False):
        super().__init__()
        self.head = nn.Linear(dim, vocab)
        self.ckpt = ckpt
    def forward(self, x, labels):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant={way}) if self.ckpt else block(x)
        logits = self.head(x).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
"""
WITH = """import torch
from omegaconf import OmegaConf
from net import Net
cfg = OmegaConf.load('conf.yaml')
torch.manual_seed(1)
# one H100 80GB
loader = torch.utils.data.DataLoader(rows, batch_size=cfg.batch_size)
model = {wrap}(Net(**cfg.model).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for x, y in loader:
    model(x.cuda(), y.cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
CONF = "batch_size: {rows}\nmodel:\n  vocab: 128256\n  dim: 512\n  depth: 8\n  ctx: 2048\n  ckpt: {ckpt}\n{more}"


def of_net(
    folder: Path, code: str, *, rows: int = 8, ckpt: str = "true", more: str = "", wrap: str = "", way: str = "False"
) -> int:
    files = {
        "net.py": NET.format(way=way),
        "train.py": WITH.format(wrap=wrap),
        "conf.yaml": CONF.format(rows=rows, ckpt=ckpt, more=more),
    }
    return len(audited(folder, files, select=(code,)).findings)


def test_models_of_ones_own_by_their_sizes(tmp_path: Path) -> None:
    assert of_net(tmp_path / "copied", "MEM003") == 1
    assert of_net(tmp_path / "small", "MEM003", rows=1) == 0
    assert of_net(tmp_path / "spare", "MEM001") == 1
    assert of_net(tmp_path / "off", "MEM001", ckpt="false") == 0
    assert of_net(tmp_path / "full", "MEM001", rows=64) == 0
    assert of_net(tmp_path / "unread", "CFG017", more="compile: true\n") == 1
    assert of_net(tmp_path / "read", "CFG017") == 0
    assert of_net(tmp_path / "wrapped", "MEM002", way="True", wrap="torch.nn.parallel.DistributedDataParallel") == 1
    assert of_net(tmp_path / "alone", "MEM002", way="True") == 0


HYDRA = """import hydra, torch
from hydra.utils import instantiate
@hydra.main(config_path='conf', config_name='config', version_base=None)
def main(cfg):
    opt = instantiate(cfg.optim, params=net.parameters(){more})
    for x in loader:
        net(x.cuda()).backward()
        opt.step()
main()
"""


@pytest.mark.parametrize(
    ("target", "keys", "more", "says"),
    [
        ("torch.optim.AdamW", "", "", True),
        ("torch.optim.Adam", "", "", True),
        ("torch.optim.AdamW", "  fused: true\n", "", False),
        ("torch.optim.AdamW", "", ", fused=True", False),
        ("torch.optim.SGD", "", "", False),
        ("bitsandbytes.optim.AdamW8bit", "", "", False),
    ],
)
def test_optimizers_that_hydra_makes(tmp_path: Path, target: str, keys: str, more: str, says: bool) -> None:
    files = {
        "train.py": HYDRA.format(more=more),
        "conf/config.yaml": f"optim:\n  _target_: {target}\n  lr: 1.0e-4\n{keys}",
    }
    assert bool(audited(tmp_path, files, select=("OPT001",)).findings) == says


AXOLOTL = """base_model: Qwen/Qwen2.5-7B-Instruct
rl: dpo
datasets:
  - path: a/b
    type: chat_template.default
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 8
num_epochs: 3
output_dir: out
learning_rate: 5e-7
bf16: true
{}"""


@pytest.mark.parametrize(("more", "says"), [("", True), ("precompute_ref_log_probs: true\n", False)])
def test_a_reference_of_axolotl(tmp_path: Path, more: str, says: bool) -> None:
    assert bool(audited(tmp_path, {"dpo.yml": AXOLOTL.format(more)}, select=("DPO001",)).findings) == says
    pinned = {"dpo.yml": AXOLOTL.format(""), "requirements.txt": "axolotl==0.8.0\n"}
    assert not audited(tmp_path / "older", pinned, select=("DPO001",)).findings
