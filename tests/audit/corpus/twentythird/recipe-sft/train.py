import click
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@click.command()
@click.option("--model", default="Qwen/Qwen2.5-3B-Instruct")
@click.option("--data", required=True)
@click.option("--out", default="runs/recipes")
@click.option("--epochs", default=2)
@click.option("--lr", default=2e-4)
@click.option("--seed", default=42)
@click.option("--resume/--no-resume", default=False)
def main(model, data, out, epochs, lr, seed, resume):
    set_seed(seed)
    tok = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(
        model, torch_dtype=torch.bfloat16, attn_implementation="sdpa"
    )
    ds = load_dataset("json", data_files=data, split="train")

    cfg = SFTConfig(
        output_dir=out,
        max_seq_length=4096,
        packing=True,
        packing_strategy="wrapped",
        num_train_epochs=epochs,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=8,
        learning_rate=lr,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        bf16=True,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        logging_steps=1,
        save_strategy="epoch",
        report_to="none",
        seed=seed,
    )
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=TARGETS, task_type="CAUSAL_LM")
    trainer = SFTTrainer(
        model=net,
        tokenizer=tok,
        args=cfg,
        train_dataset=ds,
        peft_config=lora,
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(out)


if __name__ == "__main__":
    main()
