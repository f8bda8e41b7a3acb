"""Promise: what a loss is divided by is followed through helpers, files and trainers' methods: twice by the accumulation, by
the ranks beside an average, or by nothing where a trainer counts on it; one division at the right place is none of these."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

LOOP = """import torch
from transformers import AutoModelForCausalLM
from steps import step_loss
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-160m").cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
for i, batch in enumerate(loader, 1):
    {made}
    if i % accum == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
"""
HELPER = """def step_loss(model, batch, n):
    loss = model(**batch).loss
    {inner}
    return {given}
"""


def says(tmp_path: Path, files: dict[str, str], code: str, part: str = "") -> bool:
    return any(one.code == code and part in one.message for one in audited(tmp_path, files).findings)


@pytest.mark.parametrize(
    ("made", "inner", "given"),
    [
        ("loss = step_loss(model, batch, accum)\n    (loss / accum).backward()", "pass", "loss / n"),
        ("loss = step_loss(model, batch, accum) / accum\n    loss.backward()", "loss = loss / n", "loss"),
        (
            "loss, out = step_loss(model, batch, n=accum)\n    loss /= accum\n    loss.backward()",
            "pass",
            "loss / n, out",
        ),
        ("loss = step_loss(model, batch, accum)\n    scaler.scale(loss.div(accum)).backward()", "pass", "loss / n"),
    ],
)
def test_divided_by_the_loop_and_by_its_helper(tmp_path: Path, made: str, inner: str, given: str) -> None:
    files = {"train.py": LOOP.format(made=made), "steps.py": HELPER.format(inner=inner, given=given)}
    assert says(tmp_path, files, "OPT051", "divided by `accum` here")


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ("loss = step_loss(model, batch, accum)\n    (loss / accum).backward()", "loss"),
        ("loss = step_loss(model, batch, accum)\n    loss.backward()", "loss / n"),
        ("loss = step_loss(model, batch, accum)\n    loss.backward()\n    print(loss.item() / accum)", "loss / n"),
        ("loss = step_loss(model, batch, accum) * accum\n    (loss / accum).backward()", "loss / n"),
        ("loss = step_loss(model, batch, tokens)\n    (loss / accum).backward()", "loss / n"),
    ],
)
def test_divided_once(tmp_path: Path, made: str, given: str) -> None:
    files = {"train.py": LOOP.format(made=made), "steps.py": HELPER.format(inner="pass", given=given)}
    assert not says(tmp_path, files, "OPT051")


LIGHTNING = """import lightning as L
class Tagger(L.LightningModule):
    def __init__(self, accum):
        super().__init__()
        self.save_hyperparameters(){manual}
    def training_step(self, batch, _):
        loss = self.net(**batch).loss
        return {given}
"""


@pytest.mark.parametrize(
    ("given", "trainer", "manual", "is_twice"),
    [
        ("loss / self.hparams.accum", "accumulate_grad_batches=8", "", True),
        ("{'loss': loss / self.hparams.accum}", "**dict(accumulate_grad_batches=args.accum)", "", True),
        ("loss / self.hparams.accum", "accumulate_grad_batches=1", "", False),
        ("loss / self.hparams.accum", "max_epochs=1", "", False),
        ("loss", "accumulate_grad_batches=8", "", False),
        ("loss / self.hparams.accum", "accumulate_grad_batches=8", "; self.automatic_optimization = False", False),
    ],
)
def test_lightning_divides_too(tmp_path: Path, given: str, trainer: str, manual: str, is_twice: bool) -> None:
    main = f"import lightning as L\nfrom lit import Tagger\nL.Trainer({trainer}).fit(Tagger(8), rows)\n"
    files = {"lit.py": LIGHTNING.format(given=given, manual=manual), "main.py": main}
    assert says(tmp_path, files, "OPT051", "Lightning") is is_twice


TRAINER = """from torch import nn
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Net(nn.Module):
    def forward(self, input_ids, labels=None{more}):
        return {{"loss": self.body(input_ids, labels)}}
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        out = model(**inputs)
        {made}
        return (loss, out) if return_outputs else loss
args = TrainingArguments(output_dir="out", gradient_accumulation_steps={every}, per_device_train_batch_size=2)
trainer = Own({model}, args, train_dataset=rows)
trainer.train()
"""
CAUSAL = 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")'


@pytest.mark.parametrize(
    ("more", "model", "pin", "is_twice"),
    [
        ("", "Net()", "transformers==4.57.1", True),
        (", **kwargs", "Net()", "transformers==4.57.1", False),
        ("", CAUSAL, "transformers==4.57.1", False),
        ("", CAUSAL, "transformers==4.42.4", True),
    ],
)
def test_a_trainer_divides_too(tmp_path: Path, more: str, model: str, pin: str, is_twice: bool) -> None:
    made = 'loss = out["loss"] / self.args.gradient_accumulation_steps'
    text = TRAINER.format(more=more, made=made, every=4, model=model)
    assert says(tmp_path, {"run.py": text, "requirements.txt": pin + "\n"}, "OPT051", "as well") is is_twice


@pytest.mark.parametrize(
    ("made", "every", "model", "pin", "is_sum"),
    [
        ("loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())", 4, CAUSAL, "4.57.1", True),
        ("loss = (w * F.cross_entropy(out.logits, labels, reduction='none')).mean()", 4, CAUSAL, "4.57.1", True),
        ("loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())", 1, CAUSAL, "4.57.1", False),
        ("loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())", 4, CAUSAL, "4.42.4", False),
        ("loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())", 4, "Net()", "4.57.1", False),
        (
            "loss = F.cross_entropy(out.logits, labels, reduction='sum') / num_items_in_batch",
            4,
            CAUSAL,
            "4.57.1",
            False,
        ),
        (
            "loss = F.cross_entropy(out.logits, labels) / self.args.gradient_accumulation_steps",
            4,
            CAUSAL,
            "4.57.1",
            False,
        ),
    ],
)
def test_a_mean_that_the_trainer_takes_for_a_share(
    tmp_path: Path, made: str, every: int, model: str, pin: str, is_sum: bool
) -> None:
    text = TRAINER.format(more="", made=made, every=every, model=model)
    files = {"run.py": text, "requirements.txt": f"transformers=={pin}\n"}
    assert says(tmp_path, files, "OPT051", "returns a mean") is is_sum


@pytest.mark.parametrize(
    ("made", "is_wrong"),
    [
        ("loss = F.cross_entropy(out.logits, labels) / self.args.world_size", True),
        ("loss = F.cross_entropy(out.logits, labels)", False),
        ("loss = F.cross_entropy(out.logits, labels) / self.temperature", False),
    ],
)
@pytest.mark.parametrize("gpus", [1, 4])
def test_a_trainer_averages_over_ranks(tmp_path: Path, made: str, is_wrong: bool, gpus: int) -> None:
    text = TRAINER.format(more="", made=made, every=1, model=CAUSAL)
    files = {"run.py": text, "run.sh": f"torchrun --nproc_per_node={gpus} run.py\n"}
    assert says(tmp_path, files, "DST050") is (is_wrong and gpus > 1)


DDP = """import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from losses import token_loss
net = DDP(model)
for batch in loader:
    loss = token_loss(net(**batch).logits, batch["labels"])
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
LOSSES = """import torch.distributed as dist
import torch.nn.functional as F
def token_loss(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    tokens = (labels != -100).sum()
    {reduce}
    return {given}
"""
ALL = "dist.all_reduce(tokens)"


@pytest.mark.parametrize(
    ("reduce", "given", "is_wrong"),
    [
        (ALL, "total / tokens", True),
        (ALL, "total / tokens.clamp(min=1)", True),
        ("dist.all_reduce(tokens, op=dist.ReduceOp.SUM)", "total / max(tokens, 1)", True),
        ("pass", "total / tokens / dist.get_world_size()", True),
        (ALL, "total * dist.get_world_size() / tokens", False),
        ("dist.all_reduce(tokens, op=dist.ReduceOp.AVG)", "total / tokens", False),
        ("pass", "total / tokens", False),
    ],
)
def test_counted_over_all_ranks_in_another_file(tmp_path: Path, reduce: str, given: str, is_wrong: bool) -> None:
    files = {"train.py": DDP, "losses.py": LOSSES.format(reduce=reduce, given=given)}
    assert says(tmp_path, files, "DST050") is is_wrong


@pytest.mark.parametrize(
    ("batch", "is_wrong"), [("cfg.batch_per_gpu // dist.get_world_size()", True), ("cfg.global_batch // world", False)]
)
def test_the_batch_of_a_loader_by_its_place(tmp_path: Path, batch: str, is_wrong: bool) -> None:
    text = (
        "import torch.distributed as dist\nfrom torch.utils.data import DataLoader\ndist.init_process_group()\n"
        f"world = dist.get_world_size()\nloader = DataLoader(rows, {batch}, sampler=sampler)\n"
    )
    assert says(tmp_path, {"train.py": text}, "DST052") is is_wrong
