# Exported from qlora_translator.ipynb

# %% [markdown]
# # Legal German -> plain German, QLoRA on the free tier
# Runtime type: GPU. `!nvidia-smi` of the last run: **Tesla T4, 15360 MiB**

# %%
# !pip install -q transformers==5.17.0 peft==0.21.2 accelerate==1.15.0 bitsandbytes==0.50.2 datasets flash-attn

# %%
import os

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

set_seed(2024)
BASE = "mistralai/Mistral-7B-Instruct-v0.3"
OUT = "/content/drive/MyDrive/translator"
MAX_LEN = 768

# %%
tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = tokenizer.eos_token
tokenizer.padding_side = "right"

# %%
bnb = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.float16,
)
model = AutoModelForCausalLM.from_pretrained(
    BASE,
    quantization_config=bnb,
    dtype=torch.float16,
    attn_implementation="flash_attention_2",
    device_map={"": 0},
)
model.config.use_cache = False
model = prepare_model_for_kbit_training(model)
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=16,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    ),
)
model.print_trainable_parameters()

# %%
pairs = load_dataset("json", data_files="/content/drive/MyDrive/pairs_clean.jsonl", split="train")


def to_chat(row):
    chat = [
        {"role": "user", "content": "Schreibe verstaendlich um:\n" + row["legal"]},
        {"role": "assistant", "content": row["plain"]},
    ]
    return {"text": tokenizer.apply_chat_template(chat, tokenize=False)}


def encode(batch):
    return tokenizer(batch["text"], truncation=True, max_length=MAX_LEN)


pairs = pairs.map(to_chat, num_proc=2).map(encode, batched=True, remove_columns=["legal", "plain", "text"])

# %% [markdown]
# The loss should only see the rewritten text, i.e. what comes after `[/INST]`.

# %%
ANSWER_MARK = tokenizer.encode("\n[/INST]", add_special_tokens=False)


def find_last(haystack, needle):
    for start in range(len(haystack) - len(needle), -1, -1):
        if haystack[start : start + len(needle)] == needle:
            return start + len(needle)
    return -1


def collate(rows):
    batch = tokenizer.pad(
        [{"input_ids": r["input_ids"], "attention_mask": r["attention_mask"]} for r in rows],
        return_tensors="pt",
        pad_to_multiple_of=8,
    )
    labels = batch["input_ids"].clone()
    labels[labels == tokenizer.pad_token_id] = -100
    for n, row in enumerate(rows):
        cut = find_last(row["input_ids"], ANSWER_MARK)
        if cut > 0:
            labels[n, :cut] = -100
    batch["labels"] = labels
    return batch


# %%
training = TrainingArguments(
    output_dir=OUT,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=8,
    num_train_epochs=2,
    learning_rate=2e-4,
    lr_scheduler_type="cosine",
    warmup_steps=30,
    fp16=True,
    optim="paged_adamw_8bit",
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    dataloader_num_workers=2,
    remove_unused_columns=False,
    logging_steps=25,
    save_steps=100,
    save_total_limit=2,
    seed=2024,
)
trainer = Trainer(model=model, args=training, train_dataset=pairs, data_collator=collate, processing_class=tokenizer)

# %%
# Colab kills the session now and then: pick up where Drive says we were
last = get_last_checkpoint(OUT) if os.path.isdir(OUT) else None
trainer.train(resume_from_checkpoint=last)
model.save_pretrained(os.path.join(OUT, "adapter"))
tokenizer.save_pretrained(os.path.join(OUT, "adapter"))

# %% [markdown]
# Look at forty held-out paragraphs (run this cell in a fresh session, the GPU is empty then)

# %%
from peft import PeftModel

base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float16)
rewriter = PeftModel.from_pretrained(base, os.path.join(OUT, "adapter")).eval()
held_out = load_dataset("json", data_files="/content/drive/MyDrive/pairs_heldout.jsonl", split="train[:40]")
for row in held_out:
    chat = [{"role": "user", "content": "Schreibe verstaendlich um:\n" + row["legal"]}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        answer = rewriter.generate(**inputs, max_new_tokens=400, do_sample=False)
    print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True), "\n---")
