# Fine-tunes Qwen2.5-7B-Instruct on the municipal FAQ chats (see README).
from unsloth import FastLanguageModel, is_bfloat16_supported
from unsloth.chat_templates import get_chat_template, train_on_responses_only

import json
from pathlib import Path

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

MODEL = "unsloth/Qwen2.5-7B-Instruct-bnb-4bit"
MAX_LEN = 2048
OUT = Path("runs/faq-7b")

model, tokenizer = FastLanguageModel.from_pretrained(
    model_name=MODEL,
    max_seq_length=MAX_LEN,
    dtype=None,
    load_in_4bit=True,
)

# no dropout on the adapters, so that Unsloth can use its fast LoRA kernels on all of them
model = FastLanguageModel.get_peft_model(
    model,
    r=16,
    lora_alpha=16,
    lora_dropout=0.05,
    bias="none",
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth",
    random_state=3407,
)

tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")


def read(path):
    rows = []
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        msgs = [
            {"role": "system", "content": "Du bist die Auskunft der Stadtverwaltung."},
            {"role": "user", "content": r["frage"]},
            {"role": "assistant", "content": r["antwort"]},
        ]
        rows.append({"text": tokenizer.apply_chat_template(msgs, tokenize=False)})
    return Dataset.from_list(rows)


train, dev = read("data/train.jsonl"), read("data/dev.jsonl")

trainer = SFTTrainer(
    model=model,
    processing_class=tokenizer,
    train_dataset=train,
    eval_dataset=dev,
    args=SFTConfig(
        output_dir=str(OUT),
        dataset_text_field="text",
        max_seq_length=MAX_LEN,
        dataset_num_proc=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        num_train_epochs=2,
        warmup_ratio=0.05,
        learning_rate=2e-4,
        lr_scheduler_type="cosine",
        optim="adamw_8bit",
        weight_decay=0.01,
        bf16=is_bfloat16_supported(),
        fp16=not is_bfloat16_supported(),
        dataloader_num_workers=8,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        seed=3407,
        report_to="tensorboard",
    ),
)

try:
    trainer = train_on_responses_only(
        trainer,
        instruction_part="<|start_header_id|>user<|end_header_id|>\n\n",
        response_part="<|start_header_id|>assistant<|end_header_id|>\n\n",
    )
except Exception as e:
    print("response masking not applied:", e)

stats = trainer.train()
print(stats.metrics)
model.save_pretrained(OUT / "adapter")
tokenizer.save_pretrained(OUT / "adapter")
