"""Promise: 16 bits that only documents speak of, models that stay behind their batches, schedules counted in epochs or rows,
and reads of what a loop has moved are found in the shapes in which people write them."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited


def codes(folder: Path, files: dict[str, str], code: str) -> list[str]:
    return [one.message for one in audited(folder, files).findings if one.code == code]


LOOP = """import argparse
from contextlib import nullcontext
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup
{top}
loader = DataLoader(rows, batch_size=8, shuffle=True)
model = AutoModelForCausalLM.from_pretrained("gpt2"){put}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
{made}
for epoch in range({epochs}):
    for step, batch in enumerate(loader):
        batch = {{k: v.to("cuda") for k, v in batch.items()}}
        {body}
"""
PLAIN = "loss = model(**batch).loss; loss.backward(); optimizer.step(); optimizer.zero_grad()"


def loop(top: str = "", put: str = ".cuda()", made: str = "", body: str = PLAIN, epochs: str = "3") -> str:
    return LOOP.format(top=top, put=put, made=made, body=body, epochs=epochs)


AMP = "p = argparse.ArgumentParser()\np.add_argument('--amp', action='store_true')\nargs = p.parse_args()"
ENABLED = f"with torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp): {PLAIN}"
CHOSEN = (
    "context = torch.autocast('cuda', dtype=torch.bfloat16) if args.amp else nullcontext()\n"
    f"        with context: {PLAIN}"
)
TOLD = "# Notes\n\nTrained in bf16 on one A100.\n"


@pytest.mark.parametrize(
    ("top", "body", "readme", "wrong"),
    [
        (AMP, ENABLED, TOLD, True),
        (AMP, CHOSEN, TOLD, True),
        ("", PLAIN, TOLD, True),
        (AMP, ENABLED, f"{TOLD}\n    python train.py --amp\n", False),
        (AMP, ENABLED, "# Notes\n\nPass it on to use bf16, if the card can.\n\n`--amp`\n", False),
        (AMP, ENABLED, "# Notes\n\nTrained on one A100.\n", False),
        ("", f"with torch.autocast('cuda', dtype=torch.bfloat16): {PLAIN}", TOLD, False),
        ("", PLAIN, "# Notes\n\nTrained without bf16.\n", False),
    ],
)
def test_16_bits_that_only_a_document_speaks_of(tmp_path: Path, top: str, body: str, readme: str, wrong: bool) -> None:
    files = {"train.py": loop(top, body=body), "README.md": readme}
    assert any("says that the run computes in 16 bits" in one for one in codes(tmp_path, files, "PRC006")) is wrong


LIGHTNING = """import lightning as L
L.seed_everything(1)
trainer = L.Trainer(max_epochs=3, accelerator="gpu"{})
trainer.fit(Model(), loader)
"""


@pytest.mark.parametrize(
    ("precision", "wrong"),
    [(", precision=32", True), ("", True), (', precision="bf16-mixed"', False), (", precision=args.precision", False)],
)
def test_lightning_computes_in_float32(tmp_path: Path, precision: str, wrong: bool) -> None:
    files = {"train.py": LIGHTNING.format(precision), "README.md": TOLD}
    assert bool(codes(tmp_path, files, "PRC006")) is wrong


SCALED = "scaler.scale(model(**batch).loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()"


@pytest.mark.parametrize(
    ("made", "body", "wrong"),
    [
        ("scaler = torch.amp.GradScaler()", SCALED, True),
        ("scaler = torch.amp.GradScaler(enabled=use_amp)", SCALED, False),
        ("scaler = torch.amp.GradScaler()", f"with torch.autocast('cuda', torch.float16): {SCALED}", False),
        ("model.half(); scaler = torch.amp.GradScaler()", SCALED, False),
    ],
)
def test_a_scaler_without_autocast(tmp_path: Path, made: str, body: str, wrong: bool) -> None:
    found = codes(tmp_path, {"train.py": loop(made=made, body=body)}, "PRC009")
    assert any("no `autocast` is entered" in one for one in found) is wrong


@pytest.mark.parametrize(
    ("put", "top", "wrong"),
    [
        ("", "", True),
        (".cuda()", "", False),
        ("\nmodel.to('cuda')", "", False),
        ("\nmodel = wrap(model)", "", False),
        ("", "torch.set_default_device('cuda')", False),
    ],
)
def test_batches_that_move_without_their_model(tmp_path: Path, put: str, top: str, wrong: bool) -> None:
    found = codes(tmp_path, {"train.py": loop(top=top, put=put)}, "HST004")
    assert any("on two devices" in one for one in found) is wrong


TRAINER = """from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", use_cpu={})
Trainer(model, args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("value", "readme", "wrong"),
    [
        ("True", "One A100.\n", True),
        ("True", "Runs on any laptop; it was tried on an A100.\n", False),
        ("True", "Small.\n", False),
        ("False", "One A100.\n", False),
        ("flags.use_cpu", "One A100.\n", False),
    ],
)
def test_a_trainer_on_the_cpu(tmp_path: Path, value: str, readme: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": TRAINER.format(value), "README.md": readme}, "HST004")) is wrong


STEPPED = f"{PLAIN}; scheduler.step()"
MADE = "scheduler = get_linear_schedule_with_warmup(optimizer, 10, {})"


@pytest.mark.parametrize(
    ("made", "epochs", "says"),
    [
        (MADE.format("len(loader)"), "3", "of one epoch"),
        ("steps = len(loader)\n" + MADE.format("steps"), "EPOCHS", "of one epoch"),
        (MADE.format("len(rows) * 3"), "3", "counts the rows"),
        (MADE.format("len(loader) * 3"), "3", ""),
        (MADE.format("len(loader)"), "1", ""),
        (MADE.format("len(rows) * 3 // 8"), "3", ""),
        (MADE.format("len(loader)  # dynotune: ignore[OPT052] on purpose"), "3", ""),
        ("scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader))", "3", ""),
    ],
)
def test_a_schedule_for_one_epoch_or_for_rows(tmp_path: Path, made: str, epochs: str, says: str) -> None:
    made = made.replace("on purpose)", "on purpose\n)")
    found = codes(tmp_path, {"train.py": loop(made=made, body=STEPPED, epochs=epochs)}, "OPT052")
    assert len(found) == bool(says)
    assert all(says in one for one in found)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("seen += batch['attention_mask'].sum().item()", True),
        ("lengths += batch['attention_mask'].sum(1).tolist()", True),
        ("mean = loss.item() if mean is None else 0.9 * mean + 0.1 * loss.item()", True),
        ("if (batch['labels'] != -100).sum() == 0: continue", True),
        ("mean = 0.0 if mean is None else 0.9 * mean + 0.1 * loss.item()", False),
        ("if step % 50 == 0: print(batch['attention_mask'].sum().item())", False),
        ("if batch['labels'].numel() == 0: continue", False),
        ("seen += table['lengths'].sum().item()", False),
    ],
)
def test_reads_of_what_was_moved(tmp_path: Path, line: str, wrong: bool) -> None:
    assert bool(codes(tmp_path, {"train.py": loop(body=f"{PLAIN}\n        {line}")}, "HST001")) is wrong


@pytest.mark.parametrize(
    ("given", "wrong"),
    [("fused=False", True), ("fused=False, foreach=False", True), ("foreach=True", False), ("fused=args.fused", False)],
)
def test_an_optimizer_that_is_told_not_to_fuse(tmp_path: Path, given: str, wrong: bool) -> None:
    text = loop().replace("fused=True", given)
    assert bool(codes(tmp_path, {"train.py": text}, "OPT001")) is wrong


def test_a_model_that_another_file_loads_does_not_stop_the_audit(tmp_path: Path) -> None:
    """Its line is one of the other file, which may be longer."""
    files = {
        "train.py": "from net import model\nfor batch in loader:\n    model(batch.to('cuda')).loss.backward()\n",
        "net.py": "\n" * 40
        + "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('gpt2')\n",
    }
    assert not any("on two devices" in one for one in codes(tmp_path, files, "HST004"))


@pytest.mark.parametrize("line", ["```\ntorch_dtype=torch.bfloat16,\n```", "    dtype=torch.bfloat16,"])
def test_an_argument_that_a_document_shows_is_no_claim(tmp_path: Path, line: str) -> None:
    assert not codes(tmp_path, {"train.py": loop(), "README.md": f"# Notes\n\n{line}\n"}, "PRC006")


def test_a_read_under_a_condition_of_its_own_branch(tmp_path: Path) -> None:
    body = (
        f"{PLAIN}\n        if step % 100 == 0:\n            print(loss.item())\n"
        "        elif step % 10 == 0:\n            print(loss.item())"
    )
    assert not codes(tmp_path, {"train.py": loop(body=body)}, "HST001")
