import math
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from arguments import FlatArguments
from data_utils import encode
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_linear_schedule_with_warmup,
)


def main():
    (args,) = HfArgumentParser(FlatArguments).parse_args_into_dataclasses()
    set_seed(args.seed)
    world = int(os.environ.get("WORLD_SIZE", 1))
    accum = max(1, args.gradient_accumulation_steps // world)
    accelerator = Accelerator(gradient_accumulation_steps=accum)

    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    tokenizer.pad_token = tokenizer.unk_token
    with accelerator.main_process_first():
        rows = load_dataset("json", data_files=args.train_file, split="train")
        rows = rows.map(
            encode,
            fn_kwargs={"tokenizer": tokenizer, "max_len": args.max_seq_length},
            remove_columns=rows.column_names,
            num_proc=8,
        )
    loader = DataLoader(
        rows,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100),
        num_workers=2,
        pin_memory=True,
    )

    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path, attn_implementation="sdpa")
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = accelerator.prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    updates = args.num_train_epochs * math.ceil(len(loader) / accum)
    scheduler = get_linear_schedule_with_warmup(optimizer, int(args.warmup_ratio * updates), updates)
    optimizer, loader, scheduler = accelerator.prepare(optimizer, loader, scheduler)

    model.train()
    for epoch in range(args.num_train_epochs):
        bar = tqdm(loader, disable=not accelerator.is_main_process)
        for i, batch in enumerate(bar):
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if (i + 1) % (args.logging_steps * accum) == 0:
                bar.set_postfix(loss=f"{loss.item():.3f}")
        accelerator.save_state(os.path.join(args.output_dir, f"epoch_{epoch}"))

    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir, state_dict=state)
        tokenizer.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
