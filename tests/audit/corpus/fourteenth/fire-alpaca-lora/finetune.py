import os

import fire
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
    set_seed,
)


def train(
    base_model: str = "huggyllama/llama-7b",
    data_path: str = "data/alpaca.json",
    output_dir: str = "./lora-alpaca",
    batch_size: int = 128,
    micro_batch_size: int = 8,
    num_epochs: int = 3,
    learning_rate: float = 3e-4,
    cutoff_len: int = 512,
    val_set_size: int = 2000,
    lora_r: int = 8,
    lora_alpha: int = 16,
    lora_dropout: float = 0.05,
    resume_from_checkpoint: str = None,
    seed: int = 42,
):
    set_seed(seed)
    gradient_accumulation_steps = batch_size // micro_batch_size

    world_size = int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if world_size > 1:
        gradient_accumulation_steps = gradient_accumulation_steps // world_size
        micro_batch_size = micro_batch_size // world_size

    model = AutoModelForCausalLM.from_pretrained(
        base_model,
        quantization_config=BitsAndBytesConfig(load_in_8bit=True),
        torch_dtype=torch.bfloat16,
        device_map={"": local_rank},
    )
    model.config.use_cache = False
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    tokenizer.pad_token_id = 0

    def encode(row):
        prompt = f"### Instruction:\n{row['instruction']}\n\n### Response:\n"
        p = tokenizer(prompt)["input_ids"]
        a = tokenizer(row["output"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        ids = (p + a)[:cutoff_len]
        labels = ([-100] * len(p) + a)[:cutoff_len]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}

    model = prepare_model_for_int8_training(model)
    model = get_peft_model(
        model,
        LoraConfig(
            r=lora_r,
            lora_alpha=lora_alpha,
            lora_dropout=lora_dropout,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            bias="none",
            task_type="CAUSAL_LM",
        ),
    )

    data = load_dataset("json", data_files=data_path, split="train")
    split = data.train_test_split(test_size=val_set_size, shuffle=True, seed=seed)
    split = split.map(encode, remove_columns=data.column_names)

    trainer = Trainer(
        model=model,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        args=TrainingArguments(
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            warmup_steps=100,
            num_train_epochs=num_epochs,
            learning_rate=learning_rate,
            bf16=True,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            optim="adamw_torch_fused",
            dataloader_prefetch_factor=4,
            logging_steps=10,
            eval_strategy="steps",
            save_strategy="steps",
            eval_steps=200,
            save_steps=200,
            output_dir=output_dir,
            save_total_limit=3,
            ddp_find_unused_parameters=False,
            report_to="none",
            seed=seed,
        ),
        data_collator=DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=8, padding=True),
    )
    trainer.train(resume_from_checkpoint=resume_from_checkpoint)
    model.save_pretrained(output_dir)


if __name__ == "__main__":
    fire.Fire(train)
