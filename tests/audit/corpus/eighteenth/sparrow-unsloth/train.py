# %% [markdown]
# Recipe assistant: Qwen2.5-3B in 4-bit with Unsloth, one 16 GB card (T4 or better)

# %%
from unsloth import FastLanguageModel, is_bfloat16_supported
from unsloth.chat_templates import train_on_responses_only

import os

from datasets import load_dataset
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

MAX_SEQ = 2048
OUT = "outputs/sparrow"

# %%
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="unsloth/Qwen2.5-3B-Instruct-bnb-4bit",
    max_seq_length=MAX_SEQ,
    dtype=None,  # float16 on a T4, bfloat16 from Ampere on
    load_in_4bit=True,
)
model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    lora_alpha=16,
    lora_dropout=0,
    bias="none",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)

# %%
ds = load_dataset("json", data_files="recipes.jsonl", split="train")


def to_text(rows):
    return {
        "text": [
            tokenizer.apply_chat_template(m, tokenize=False, add_generation_prompt=False)
            for m in rows["messages"]
        ]
    }


ds = ds.map(to_text, batched=True, remove_columns=ds.column_names)

# %%
trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=ds,
    args=SFTConfig(
        output_dir=OUT,
        dataset_text_field="text",
        max_length=MAX_SEQ,
        dataset_num_proc=2,
        packing=False,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=2,
        warmup_ratio=0.03,
        learning_rate=2e-4,
        lr_scheduler_type="linear",
        optim="adamw_8bit",
        weight_decay=0.01,
        fp16=not is_bfloat16_supported(),
        bf16=is_bfloat16_supported(),
        logging_steps=10,
        save_steps=200,
        save_total_limit=2,
        report_to="none",
        seed=3407,
    ),
)
trainer = train_on_responses_only(
    trainer,
    instruction_part="<|im_start|>user\n",
    response_part="<|im_start|>assistant\n",
)
assert any(t != -100 for t in trainer.train_dataset[0]["labels"])

# %%
last = get_last_checkpoint(OUT) if os.path.isdir(OUT) else None
trainer.train(resume_from_checkpoint=last)

# %%
model.save_pretrained(f"{OUT}/adapter")
tokenizer.save_pretrained(f"{OUT}/adapter")
