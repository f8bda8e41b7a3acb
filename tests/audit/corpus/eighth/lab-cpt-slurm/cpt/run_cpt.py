import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainerCallback, TrainingArguments, set_seed

from cpt.corpus import PatentBlocks


class Throughput(TrainerCallback):
    """tokens_per_second in the log"""

    def __init__(self, seq_len: int):
        self.seq_len = seq_len
        self.best = float("inf")
        self.t0 = None

    def on_step_begin(self, args, state, control, **kw):
        self.t0 = time.perf_counter()

    def on_step_end(self, args, state, control, **kw):
        self.best = min(self.best, time.perf_counter() - self.t0)

    def on_log(self, args, state, control, logs=None, **kw):
        tokens = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size * self.seq_len
        if logs is not None and self.best < float("inf"):
            logs["tokens_per_second"] = round(tokens / self.best)


def main():
    with open(sys.argv[1]) as fh:
        cfg = json.load(fh)
    args = TrainingArguments(**cfg["trainer"])
    set_seed(args.seed)

    tokenizer = AutoTokenizer.from_pretrained(cfg["model"])
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        cfg["model"], torch_dtype=torch.float32, attn_implementation="sdpa", use_cache=False
    )

    data = PatentBlocks(cfg["corpus"], tokenizer, cfg["seq_len"])
    if args.process_index == 0:
        print(f"{len(data)} blocks, {sum(p.numel() for p in model.parameters()) / 1e9:.2f}B parameters")

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data,
        callbacks=[Throughput(cfg["seq_len"])],
    )
    trainer.train()
    trainer.save_model()
    if args.process_index == 0:
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
