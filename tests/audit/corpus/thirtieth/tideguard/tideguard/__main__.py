import argparse
import os

from transformers import AutoTokenizer, DataCollatorForSeq2Seq, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from .adapter import quantised
from .rows import build

BASE = "Qwen/Qwen2.5-7B-Instruct"
MICRO = 8


def main():
    ap = argparse.ArgumentParser("tideguard")
    ap.add_argument("--data", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--global-batch", type=int, default=64)
    a = ap.parse_args()

    # set by torchrun before this module is imported
    world = int(os.environ["WORLD_SIZE"])
    local = int(os.environ["LOCAL_RANK"])
    accum, rest = divmod(a.global_batch, MICRO * world)
    if rest or not accum:
        raise SystemExit(f"--global-batch must be a multiple of {MICRO * world}")

    set_seed(31)
    args = TrainingArguments(
        output_dir=a.out,
        per_device_train_batch_size=MICRO,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=accum,
        num_train_epochs=2,
        learning_rate=1e-4,
        lr_scheduler_type="cosine",
        warmup_steps=0.03,
        bf16=True,
        optim="adamw_torch_fused",
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        ddp_find_unused_parameters=False,
        train_sampling_strategy="group_by_length",
        eval_strategy="steps",
        eval_steps=200,
        save_strategy="steps",
        save_steps=200,
        save_total_limit=2,
        logging_steps=20,
        prediction_loss_only=True,
        dataloader_num_workers=2,
        seed=31,
    )
    tok = AutoTokenizer.from_pretrained(BASE)
    with args.main_process_first(desc="encode rows"):
        rows = build(a.data, tok, num_proc=8)

    trainer = Trainer(
        model=quantised(BASE, local),
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows["dev"],
        data_collator=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100, pad_to_multiple_of=8),
        processing_class=tok,
    )
    last = get_last_checkpoint(a.out) if os.path.isdir(a.out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(os.path.join(a.out, "final"))


if __name__ == "__main__":
    main()
