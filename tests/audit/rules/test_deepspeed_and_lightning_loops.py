"""Promise: loops of DeepSpeed and Lightning are known by what these do themselves: divide, divide again, advance, log."""

from pathlib import Path

import pytest

from dynotune.audit.finding import Finding
from tests.audit.made_up import audited


def found(folder: Path, code: str, files: dict[str, str]) -> list[Finding]:
    return list(audited(folder, files, select=(code,)).findings)


ENGINE = """import argparse
import deepspeed
from transformers import AutoModelForCausalLM

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
args = parser.parse_args()
accum = 4
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
engine, _, _, _ = deepspeed.initialize(args=args, model=model)
for batch in loader:
    loss = engine(**batch).loss{divided}
    engine.backward({handed})
    engine.step()
"""
CONFIG = '{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": {}, "zero_optimization": {}}}'
PLAIN = '{"stage": 2}'
AWAY = '{"stage": 3, "offload_optimizer": {"device": "cpu"}}'
RUN = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json\n"


@pytest.mark.parametrize(
    ("divided", "handed", "every", "right"),
    [
        (" / 4", "loss", 4, False),
        (" / accum", "loss", 4, False),
        ("\n    loss /= accum", "loss", 4, False),
        ("", "loss / accum", 4, False),
        ("", "loss", 4, True),
        (" / accum", "loss", 1, True),
        (" / 2", "loss", 4, True),  # a weight of something else
        ("\n    shown = loss / accum", "loss", 4, True),
    ],
)
def test_deepspeed_divides_by_itself(tmp_path: Path, divided: str, handed: str, every: int, right: bool) -> None:
    files = {"train.py": ENGINE.format(divided=divided, handed=handed), "ds.json": CONFIG.format(every, PLAIN)}
    said = found(tmp_path, "OPT054", {**files, "run.sh": RUN})
    assert bool(said) is not right
    assert right or "DeepSpeed's `backward`" in said[0].message


@pytest.mark.parametrize(("zero", "right"), [(AWAY, False), (PLAIN, True)])
@pytest.mark.parametrize("flag", ["--deepspeed_config ds.json", ""])
def test_a_loop_offloads_what_fits(tmp_path: Path, zero: str, right: bool, flag: str) -> None:
    run = f"deepspeed --num_gpus 8 train.py {flag}\n"
    files = {"train.py": ENGINE.format(divided="", handed="loss"), "ds.json": CONFIG.format(4, zero), "run.sh": run}
    assert bool(found(tmp_path, "MEM004", files)) is not right


LIGHTNING = """import lightning as L
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR


class Net(L.LightningModule):
    def training_step(self, batch, index):
        loss = self.model(**batch).loss
        self.log("loss", {logged})
        return loss

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = CosineAnnealingLR(opt, T_max={length})
        return {returned}


L.Trainer(accelerator="gpu", max_steps=20000).fit(Net(), loader)
"""
LISTS = "[opt], [sched]"
TOLD = '{"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}'


@pytest.mark.parametrize(
    ("length", "returned", "right"),
    [
        ("20000", LISTS, False),
        ("self.hparams.max_steps", LISTS, False),
        ("self.trainer.max_steps", LISTS, False),
        ("20000", TOLD, True),
        ("50", LISTS, True),
        ("self.trainer.max_epochs", LISTS, True),
    ],
)
def test_lightning_advances_once_an_epoch(tmp_path: Path, length: str, returned: str, right: bool) -> None:
    text = LIGHTNING.format(logged="loss", length=length, returned=returned)
    assert bool(found(tmp_path, "OPT052", {"train.py": text})) is not right


def test_lightning_is_given_the_tensor(tmp_path: Path) -> None:
    text = LIGHTNING.format(logged="loss.item()", length="50", returned=LISTS)
    (said,) = found(tmp_path, "HST001", {"train.py": text})
    assert "self.log(name, value.detach())" in said.remedy.text
    assert not found(tmp_path / "right", "HST001", {"train.py": text.replace(".item()", "")})
