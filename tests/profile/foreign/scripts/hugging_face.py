"""Somebody's script for transformers' Trainer: `hugging_face.py JSON FOLDER` with what is planted in it.

Of the JSON: `full_precision` (bf16 is asked for, and the loss is computed outside of autocast); `fill` (rows are padded to a
length of which that share is real); `arguments` (of TrainingArguments).
"""

import json
import random
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

asked = json.loads(sys.argv[1])
LENGTH = 64


class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        if not asked.get("full_precision"):
            return super().compute_loss(model, inputs, return_outputs, **more)
        with torch.autocast("cpu", enabled=False):
            inner = self.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
            return inner(**inputs).loss


def rows(count):
    draw = random.Random(0)
    for _ in range(count):
        real = int(LENGTH * asked.get("fill", 1.0))
        ids = [draw.randrange(3, 200) for _ in range(real)]
        pad = LENGTH - real
        yield {
            "input_ids": ids + [0] * pad,
            "attention_mask": [1] * real + [0] * pad,
            "labels": ids + [-100] * pad,
        }


torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=200,
        pad_token_id=0,
    )
)
arguments = {
    "output_dir": sys.argv[2], "max_steps": 80, "per_device_train_batch_size": 8, "report_to": "none", "use_cpu": True,
    "save_strategy": "no", "logging_steps": 5, "disable_tqdm": True, "bf16": bool(asked.get("full_precision")),
    **asked.get("arguments", {}),
}  # fmt: skip
Mine(model=model, args=TrainingArguments(**arguments), train_dataset=list(rows(1000))).train()
