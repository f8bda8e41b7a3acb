#!/usr/bin/env python
"""Writes the arguments of a run: recipe.json -> runs/NAME/args.json"""
import argparse
import json
import os
import pathlib

p = argparse.ArgumentParser()
p.add_argument("--recipe", default="prepare/recipe.json")
p.add_argument("--name", required=True)
a = p.parse_args()

recipe = json.loads(pathlib.Path(a.recipe).read_text())
world = int(os.environ.get("WORLD_SIZE", 1))

accum = recipe["sequences_per_update"] // (recipe["per_device"] * world)
assert accum >= 1, "too many GPUs for this number of sequences"

out = pathlib.Path("runs") / a.name
out.mkdir(parents=True, exist_ok=True)
args = {
    "model": recipe["model"],
    "corpus": recipe["corpus"],
    "seq_len": recipe["seq_len"],
    "trainer": {
        "output_dir": str(out),
        "per_device_train_batch_size": recipe["per_device"],
        "gradient_accumulation_steps": accum,
        "learning_rate": recipe["learning_rate"],
        "lr_scheduler_type": "cosine",
        "warmup_steps": recipe["warmup_steps"],
        "max_steps": recipe["max_steps"],
        "bf16": True,
        "tf32": True,
        "optim": "adamw_torch_fused",
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "ddp_find_unused_parameters": True,
        "logging_steps": 10,
        "save_steps": 200,
        "save_total_limit": 3,
        "dataloader_num_workers": 0,
        "remove_unused_columns": False,
        "seed": recipe["seed"],
        "report_to": ["tensorboard"],
    },
}
(out / "args.json").write_text(json.dumps(args, indent=2) + "\n")
print(f"{out}/args.json: accumulation {accum}")
