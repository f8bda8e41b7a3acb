import fire
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

LORA = {
    "r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
    "task_type": "CAUSAL_LM",
    "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
}


def tokenize(tok, cutoff):
    def fn(row):
        head = tok(f"### Task:\n{row['task']}\n\n### Solution:\n")["input_ids"]
        tail = tok(row["solution"], add_special_tokens=False)["input_ids"] + [tok.eos_token_id]
        ids = (head + tail)[:cutoff]
        labels = ([-100] * len(head) + tail)[:cutoff]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    return fn


def run(
    base: str = "meta-llama/Llama-3.1-8B",
    data: str = "tasks.jsonl",
    out: str = "siskin-lora",
    cutoff: int = 2048,
    epochs: int = 3,
    lr: float = 2e-4,
    resume: bool = False,
):
    tok = AutoTokenizer.from_pretrained(base)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    model = get_peft_model(model, LoraConfig(**LORA))
    model.print_trainable_parameters()

    ds = load_dataset("json", data_files=data, split="train")
    ds = ds.map(tokenize(tok, cutoff), remove_columns=ds.column_names)

    args = TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=epochs,
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        bf16=True,
        optim="adamw_torch_fused",
        use_liger_kernel=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        dataloader_num_workers=0,
        dataloader_prefetch_factor=4,
        logging_steps=10,
        save_steps=200,
        save_total_limit=3,
        report_to="none",
        seed=21,
    )
    Trainer(
        model=model,
        args=args,
        train_dataset=ds,
        data_collator=DataCollatorForSeq2Seq(tok, padding="longest"),
    ).train(resume_from_checkpoint=resume)
    model.save_pretrained(out)
    tok.save_pretrained(out)


if __name__ == "__main__":
    fire.Fire(run)
