"""QLoRA fine-tuning of Mistral 7B on short recipes (single Tesla T4)."""
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

BASE = "mistralai/Mistral-7B-v0.1"
DATA = "data/recipes.jsonl"
OUT = "adapter"
CONTEXT = 1024
SEED = 5

TEMPLATE = "Ingredients: {ingredients}\nRecipe: {recipe}"


def load_base():
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float16,  # the T4 has no bfloat16 units
    )
    model = AutoModelForCausalLM.from_pretrained(
        BASE,
        quantization_config=quant,
        torch_dtype=torch.float16,
        attn_implementation="flash_attention_2",
        device_map={"": 0},
    )
    model.config.use_cache = False
    return prepare_model_for_kbit_training(
        model,
        use_gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
    )


def add_adapter(model):
    config = LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        bias="none",
        task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    )
    model = get_peft_model(model, config)
    model.print_trainable_parameters()
    return model


def load_recipes(tokenizer):
    def encode(batch):
        texts = [
            TEMPLATE.format(ingredients=i, recipe=r) + tokenizer.eos_token
            for i, r in zip(batch["ingredients"], batch["recipe"])
        ]
        return tokenizer(texts, truncation=True, max_length=CONTEXT, padding="max_length")

    ds = load_dataset("json", data_files=DATA, split="train")
    return ds.map(encode, batched=True, remove_columns=ds.column_names)


def main():
    set_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "right"

    train = load_recipes(tokenizer)
    model = add_adapter(load_base())

    args = TrainingArguments(
        output_dir=OUT,
        num_train_epochs=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        warmup_ratio=0.03,
        optim="paged_adamw_8bit",
        fp16=True,
        group_by_length=True,  # recipes differ a lot in length, keep similar ones together
        logging_steps=5,
        save_strategy="epoch",
        save_total_limit=1,
        save_safetensors=False,
        report_to="none",
        seed=SEED,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    last = get_last_checkpoint(OUT) if os.path.isdir(OUT) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(OUT)
    tokenizer.save_pretrained(OUT)


if __name__ == "__main__":
    main()
