"""Promise: tokens that a trainer's own class counts and a callback divides by its clock are held against padding."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """from transformers import {collator}, TrainingArguments
from speed import CountingTrainer, SpeedCallback
trainer = CountingTrainer(model=m, args=TrainingArguments("out"), data_collator={collator}(tok), train_dataset=d)
trainer.add_callback(SpeedCallback(trainer))
trainer.train()
"""
SPEED = """import time
from transformers import Trainer, TrainerCallback


class CountingTrainer(Trainer):
    seen = 0

    def training_step(self, model, inputs, *args, **kwargs):
        self.seen += {counted}
        return super().training_step(model, inputs, *args, **kwargs)


class SpeedCallback(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **kwargs):
        self.start, self.first = time.perf_counter(), self.trainer.seen

    def on_epoch_end(self, args, state, control, **kwargs):
        took = time.perf_counter() - self.start
        {shown}
"""
ALL, REAL = 'inputs["input_ids"].numel()', 'inputs["attention_mask"].sum()'
GROWN = 'print(f"{(self.trainer.seen - self.first) / took:,.0f} training tokens/s")'
NAMED = 'grown = self.trainer.seen - self.first\n        print("tokens/s", grown / took)'
INLINE = 'print("tokens/s", self.trainer.seen / (time.perf_counter() - self.start))'
NO_SPEED = 'print("tokens so far", self.trainer.seen, "in", took)'


@pytest.mark.parametrize(
    ("counted", "shown", "collator", "found"),
    [
        *[(ALL, shown, "DataCollatorWithPadding", True) for shown in (GROWN, NAMED, INLINE)],
        (REAL, GROWN, "DataCollatorWithPadding", False),
        (ALL, NO_SPEED, "DataCollatorWithPadding", False),
        (ALL, GROWN, "DataCollatorWithFlattening", False),
        ('len(inputs["input_ids"])', GROWN.replace("tokens/s", "rows/s"), "DataCollatorWithPadding", False),
    ],
)
def test_a_counter_of_a_class_over_a_callbacks_clock(
    tmp_path: Path, counted: str, shown: str, collator: str, found: bool
) -> None:
    files = {"train.py": TRAIN.format(collator=collator), "speed.py": SPEED.format(counted=counted, shown=shown)}
    codes = [one.code for one in audited(tmp_path, files).findings]
    assert ("MSR001" in codes) is found
