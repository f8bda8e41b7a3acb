import torch
import typer
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

app = typer.Typer()


@app.command()
def main(
    model: str = "meta-llama/Llama-3.2-1B-Instruct",
    pairs: str = "pairs.jsonl",
    out: str = "out/tern",
    beta: float = 0.1,
    lr: float = 5e-7,
    epochs: int = 3,
):
    tok = AutoTokenizer.from_pretrained(model)
    tok.pad_token = "<|finetune_right_pad_id|>"

    policy = AutoModelForCausalLM.from_pretrained(
        model,
        torch_dtype=torch.bfloat16,
        attn_implementation="sdpa",
        device_map="auto",
    )
    policy.config.use_cache = False
    reference = AutoModelForCausalLM.from_pretrained(
        model,
        attn_implementation="sdpa",
        device_map="auto",
    )

    ds = load_dataset("json", data_files=pairs, split="train")
    ds = ds.train_test_split(test_size=0.02, seed=11)

    args = DPOConfig(
        output_dir=out,
        beta=beta,
        learning_rate=lr,
        num_train_epochs=epochs,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=8,
        optim="adamw_torch_fused",
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        max_seq_length=2048,
        max_prompt_length=1024,
        eval_strategy="steps",
        eval_steps=100,
        save_steps=100,
        save_total_limit=2,
        logging_steps=10,
        ddp_find_unused_parameters=True,
        report_to="none",
        seed=11,
    )
    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=args,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model(out)


if __name__ == "__main__":
    app()
