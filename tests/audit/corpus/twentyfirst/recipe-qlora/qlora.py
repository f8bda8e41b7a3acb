import typer
import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

app = typer.Typer()
LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]

COMMON = dict(
    bf16=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": True},
    optim="paged_adamw_8bit",
    lr_scheduler_type="cosine",
    warmup_ratio=0.03,
    logging_steps=10,
    save_strategy="epoch",
    dataloader_num_workers=8,
    group_by_length=True,
    use_liger_kernel=True,
    report_to="none",
    seed=11,
)


def load_model(name: str):
    quant = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        name, quantization_config=quant, torch_dtype=torch.bfloat16, device_map={"": 0}
    )
    model.config.use_cache = False
    lora = LoraConfig(r=32, lora_alpha=32, lora_dropout=0.05, target_modules=LORA_TARGETS, task_type="CAUSAL_LM")
    return get_peft_model(model, lora)


def build_data(path: str, tok, max_len: int):
    ds = load_dataset("json", data_files=path, split="train")

    def encode(row):
        chat = [{"role": "user", "content": row["dish"]}, {"role": "assistant", "content": row["recipe"]}]
        text = tok.apply_chat_template(chat, tokenize=False)
        return tok(text, truncation=True, max_length=max_len, padding="max_length", add_special_tokens=False)

    return ds.map(encode, remove_columns=ds.column_names)


@app.command()
def train(
    data: str = "recipes.jsonl",
    model_name: str = "Qwen/Qwen2.5-7B-Instruct",
    out: str = "out/recipe-qlora",
    max_len: int = 2048,
    batch: int = 4,
    accum: int = 4,
    epochs: float = 2.0,
    lr: float = 1e-4,
    resume: bool = False,
):
    tok = AutoTokenizer.from_pretrained(model_name)
    ds = build_data(data, tok, max_len)
    model = load_model(model_name)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accum,
            num_train_epochs=epochs,
            learning_rate=lr,
            **COMMON,
        ),
        train_dataset=ds,
        data_collator=DataCollatorForLanguageModeling(tok, mlm=False),
    )
    trainer.train(resume_from_checkpoint=resume or None)
    model.save_pretrained(out)
    tok.save_pretrained(out)


if __name__ == "__main__":
    app()
