import argparse

import torch
from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
MAX_LEN = 1024


def encode(row, tok):
    user = [{"role": "user", "content": "Summarise:\n" + row["article"][:3000]}]
    prompt = tok.apply_chat_template(user, tokenize=True, add_generation_prompt=True)
    answer = tok(row["summary"] + "<|im_end|>\n", add_special_tokens=False).input_ids
    ids = (prompt + answer)[:MAX_LEN]
    labels = ([-100] * len(prompt) + answer)[:MAX_LEN]
    return {"input_ids": ids, "labels": labels, "attention_mask": [1] * len(ids)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--deepspeed", required=True)
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--grad_acc", type=int, default=1)
    p.add_argument("--output_dir", required=True)
    p.add_argument("--local_rank", type=int, default=-1)
    a = p.parse_args()

    args = TrainingArguments(
        output_dir=a.output_dir,
        deepspeed=a.deepspeed,
        bf16=True,
        num_train_epochs=2,
        per_device_train_batch_size=a.batch_size,
        gradient_accumulation_steps=a.grad_acc,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="adamw_torch_fused",
        max_grad_norm=1.0,
        dataloader_num_workers=4,
        logging_steps=20,
        save_steps=200,
        save_total_limit=2,
        seed=17,
        report_to="none",
    )
    set_seed(args.seed)
    tok = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16)
    model.config.use_cache = False

    with args.main_process_first():
        ds = load_dataset("json", data_files="data/summ.jsonl", split="train")
        ds = ds.map(encode, fn_kwargs={"tok": tok}, num_proc=8, remove_columns=ds.column_names)

    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100),
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
