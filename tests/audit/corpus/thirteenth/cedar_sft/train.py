import torch
import typer
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

app = typer.Typer(add_completion=False)


@app.command()
def main(
    model: str = typer.Option("Qwen/Qwen2.5-7B-Instruct"),
    data: str = typer.Option("data/dialogs.jsonl"),
    out: str = typer.Option("outputs/cedar"),
    lr: float = typer.Option(1e-4),
    epochs: int = typer.Option(3),
):
    tokenizer = AutoTokenizer.from_pretrained(model)
    base = AutoModelForCausalLM.from_pretrained(
        model,
        dtype=torch.bfloat16,
        attn_implementation="flash_attention_2",
        device_map="auto",
    )

    args = SFTConfig(
        output_dir=out,
        max_seq_length=8192,
        packing=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        num_train_epochs=epochs,
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        bf16=True,
        use_liger_kernel=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        logging_steps=5,
        save_strategy="epoch",
        save_total_limit=2,
        report_to="none",
        seed=11,
    )
    peft_config = LoraConfig(
        task_type="CAUSAL_LM",
        r=32,
        lora_alpha=64,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
    )
    trainer = SFTTrainer(
        model=base,
        args=args,
        train_dataset=load_dataset("json", data_files=data, split="train"),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    app()
