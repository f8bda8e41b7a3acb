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
    set_seed,
)

from prompter import build_prompt


def train(
    base_model: str = "meta-llama/Llama-3.2-3B",
    data_path: str = "alpaca_data.json",
    output_dir: str = "./lora-alpaca",
    micro_batch_size: int = 8,
    batch_size: int = 64,
    num_epochs: int = 3,
    learning_rate: float = 2e-4,
    cutoff_len: int = 1024,
    lora_r: int = 16,
    lora_alpha: int = 32,
    lora_dropout: float = 0.05,
    group_by_length: bool = True,
    resume_from_checkpoint: str = None,
    seed: int = 42,
):
    set_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    tokenizer.padding_side = "right"

    model = AutoModelForCausalLM.from_pretrained(
        base_model, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model = get_peft_model(
        model,
        LoraConfig(
            r=lora_r,
            lora_alpha=lora_alpha,
            lora_dropout=lora_dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )

    def tokenize(row):
        prompt = build_prompt(row["instruction"], row.get("input"))
        n = len(tokenizer(prompt)["input_ids"])
        out = tokenizer(
            prompt + row["output"] + tokenizer.eos_token,
            truncation=True,
            max_length=cutoff_len,
            padding="max_length",
        )
        out["labels"] = [
            t if i >= n and m == 1 else -100
            for i, (t, m) in enumerate(zip(out["input_ids"], out["attention_mask"]))
        ]
        return out

    data = load_dataset("json", data_files=data_path, split="train")
    data = data.map(tokenize, remove_columns=data.column_names, num_proc=4)

    trainer = Trainer(
        model=model,
        train_dataset=data,
        args=TrainingArguments(
            output_dir=output_dir,
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=batch_size // micro_batch_size,
            num_train_epochs=num_epochs,
            learning_rate=learning_rate,
            warmup_ratio=0.03,
            bf16=True,
            optim="adamw_torch_fused",
            group_by_length=group_by_length,
            dataloader_num_workers=12,
            logging_steps=10,
            save_steps=200,
            save_total_limit=3,
            report_to="none",
            seed=seed,
        ),
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, label_pad_token_id=-100),
    )
    trainer.train(resume_from_checkpoint=resume_from_checkpoint)
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)


if __name__ == "__main__":
    fire.Fire(train)
