import argparse

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import ORPOConfig, ORPOTrainer

import settings as S


def build_dataset(tokenizer, limit=None):
    ds = load_dataset("json", data_files=str(S.DATA), split="train")
    if limit:
        ds = ds.select(range(limit))

    def render(row):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
        )
        return {"prompt": prompt, "chosen": row["chosen"], "rejected": row["rejected"]}

    ds = ds.map(render)
    return ds.train_test_split(test_size=0.02, seed=3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--limit", type=int, default=None)
    ap.add_argument("--lr", type=float, default=S.LR)
    args = ap.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(S.MODEL, revision=S.REVISION, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(
        S.MODEL,
        revision=S.REVISION,
        torch_dtype=torch.float32,
        attn_implementation="sdpa",
        trust_remote_code=True,
    )
    model.config.use_cache = False
    ds = build_dataset(tokenizer, args.limit)

    config = ORPOConfig(
        output_dir=str(S.OUT),
        beta=S.BETA,
        max_length=S.MAX_LEN,
        max_prompt_length=S.MAX_PROMPT,
        dataset_num_proc=8,
        per_device_train_batch_size=S.BATCH,
        per_device_eval_batch_size=S.BATCH,
        gradient_accumulation_steps=S.ACCUM,
        num_train_epochs=S.EPOCHS,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        optim="adamw_torch_fused",
        bf16=True,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        seed=3,
        report_to="tensorboard",
    )
    trainer = ORPOTrainer(
        model=model,
        args=config,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        tokenizer=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(S.OUT))


if __name__ == "__main__":
    main()
