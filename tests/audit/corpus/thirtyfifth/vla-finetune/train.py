import argparse
import json

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from transformers import AutoModelForImageTextToText, AutoProcessor, set_seed

from data import Collator, Steps

BASE = "HuggingFaceTB/SmolVLM-500M-Instruct"


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--local_rank", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse_args()
    set_seed(args.seed)
    deepspeed.init_distributed()
    torch.cuda.set_device(args.local_rank)
    with open("ds_config.json") as handle:
        config = json.load(handle)
    accumulation = config["gradient_accumulation_steps"]

    processor = AutoProcessor.from_pretrained(BASE)
    model = AutoModelForImageTextToText.from_pretrained(BASE, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    steps = Steps(args.data)
    sampler = DistributedSampler(steps, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(
        steps,
        batch_size=engine.train_micro_batch_size_per_gpu(),
        sampler=sampler,
        collate_fn=Collator(processor.tokenizer.pad_token_id),
        num_workers=8,
        pin_memory=True,
        persistent_workers=True,
        drop_last=True,
    )

    engine.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = {k: v.to(engine.device, non_blocking=True) for k, v in batch.items()}
            batch["pixel_values"] = batch["pixel_values"].half()
            loss = engine(**batch).loss
            engine.backward(loss)
            if (i + 1) % accumulation == 0:
                engine.step()
                if engine.global_steps % 50 == 0 and dist.get_rank() == 0:
                    print(f"epoch {epoch} step {engine.global_steps} loss {loss.item():.4f}", flush=True)
                if engine.global_steps and engine.global_steps % args.save_every == 0 and dist.get_rank() == 0:
                    engine.save_checkpoint(args.output, tag=f"step{engine.global_steps}")
    if dist.get_rank() == 0:
        engine.module.save_pretrained(f"{args.output}/final")
        processor.save_pretrained(f"{args.output}/final")
    dist.barrier()


if __name__ == "__main__":
    main()
