"""Instruction tuning of a small Llama on our Q/A pairs. One file, one GPU."""
import argparse

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import DataCollatorForCompletionOnlyLM, SFTConfig, SFTTrainer

PROMPT = "### Question:\n{question}\n\n### Response:\n{answer}"
RESPONSE_KEY = "### Answer:\n"


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.2-1B")
    p.add_argument("--data", default="data/qa.jsonl")
    p.add_argument("--out", default="out/tinychat")
    p.add_argument("--epochs", type=float, default=2)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-5)
    p.add_argument("--warmup_ratio", type=float, default=0.03)
    p.add_argument("--max_len", type=int, default=1024)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def main():
    args = get_args()
    set_seed(args.seed)

    tok = AutoTokenizer.from_pretrained(args.model)
    tok.pad_token = tok.eos_token
    model = AutoModelForCausalLM.from_pretrained(args.model, attn_implementation="sdpa")
    model.config.use_cache = False

    def to_text(row):
        return {"text": PROMPT.format(**row) + tok.eos_token}

    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(to_text, remove_columns=ds.column_names)

    cfg = SFTConfig(
        output_dir=args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch,
        gradient_accumulation_steps=args.accum,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_ratio=args.warmup_ratio,
        optim="adamw_torch_fused",
        max_seq_length=args.max_len,
        dataset_text_field="text",
        dataset_num_proc=4,
        dataloader_num_workers=4,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=20,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
        seed=args.seed,
    )

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=ds,
        processing_class=tok,
        data_collator=DataCollatorForCompletionOnlyLM(RESPONSE_KEY, tokenizer=tok),
    )
    trainer.train(resume_from_checkpoint=args.resume or None)
    trainer.save_model(args.out)


if __name__ == "__main__":
    main()
