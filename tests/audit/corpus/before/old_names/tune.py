from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments
from trl import SFTTrainer

model_id = "google/gemma-2b"
tokenizer = AutoTokenizer.from_pretrained(model_id)
model = AutoModelForCausalLM.from_pretrained(model_id, torch_dtype="auto", device_map={"": 0})
data = load_dataset("json", data_files={"train": "train.json", "test": "test.json"})
args = TrainingArguments(
    output_dir="gemma",
    evaluation_strategy="steps",
    eval_steps=100,
    per_device_train_batch_size=4,
    learning_rate=2e-5,
    bf16=True,
    seed=0,
    logging_steps=10,
    optim="adamw_torch_fused",
)
trainer = SFTTrainer(
    model,
    args=args,
    train_dataset=data["train"],
    eval_dataset=data["test"],
    tokenizer=tokenizer,
    dataset_text_field="text",
    max_seq_length=1024,
)
trainer.train()
