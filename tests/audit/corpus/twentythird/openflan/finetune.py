import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    HfArgumentParser,
    get_scheduler,
)

from args import FlatArguments
from encode import encode


def main(args: FlatArguments):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)
    hub = dict(revision=args.model_revision, trust_remote_code=args.trust_remote_code)

    tok = AutoTokenizer.from_pretrained(args.model_name_or_path, **hub)
    model = AutoModelForCausalLM.from_pretrained(
        args.model_name_or_path,
        torch_dtype=torch.bfloat16,
        attn_implementation="flash_attention_2" if args.use_flash_attention else "sdpa",
        **hub,
    )
    model.to(accelerator.device)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    lora = LoraConfig(r=args.lora_rank, lora_alpha=2 * args.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)

    raw = load_dataset("json", data_files=args.train_file, split="train")
    with accelerator.main_process_first():
        ds = raw.map(
            encode,
            fn_kwargs={"tok": tok, "max_len": args.max_seq_length},
            num_proc=args.preprocessing_num_workers,
            remove_columns=raw.column_names,
        )
    loader = DataLoader(
        ds,
        batch_size=args.per_device_train_batch_size,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        num_workers=4,
        pin_memory=True,
    )

    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=args.learning_rate, weight_decay=0.0, fused=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)

    updates = args.num_train_epochs * math.ceil(len(loader) / args.gradient_accumulation_steps)
    sched = get_scheduler("linear", opt, int(updates * args.warmup_ratio), updates)

    start_epoch = 0
    if args.resume_from:
        accelerator.load_state(args.resume_from)
        sched.load_state_dict(torch.load(f"{args.resume_from}/sched.pt", weights_only=True))
        start_epoch = int(args.resume_from.rstrip("/").rsplit("_", 1)[-1]) + 1

    done = 0
    running = torch.zeros((), device=accelerator.device)
    for epoch in range(start_epoch, args.num_train_epochs):
        model.train()
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                running += loss.detach()
                accelerator.backward(loss)
                opt.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                sched.step()
                done += 1
                if done % args.logging_steps == 0:
                    mean = running.item() / (args.logging_steps * args.gradient_accumulation_steps)
                    accelerator.print(f"update {done}/{updates} loss {mean:.4f}")
                    running.zero_()
        state_dir = f"{args.output_dir}/epoch_{epoch}"
        accelerator.save_state(state_dir)
        if accelerator.is_main_process:
            torch.save(sched.state_dict(), f"{state_dir}/sched.pt")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.unwrap_model(model).save_pretrained(args.output_dir, safe_serialization=True)
        tok.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main(HfArgumentParser(FlatArguments).parse_args_into_dataclasses()[0])
