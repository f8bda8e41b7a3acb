from dataclasses import dataclass, field
from typing import Optional

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="HuggingFaceTB/SmolLM2-1.7B-Instruct")
    train_file: str = field(default="pairs/train.jsonl")
    eval_file: str = field(default="pairs/eval.jsonl")
    output_dir: str = field(default="out/dpo-helpful")
    beta: float = field(default=0.1)
    learning_rate: float = field(default=5e-7)
    epochs: int = field(default=3)
    seed: int = field(default=42)
    resume: Optional[str] = field(default=None)


def main():
    (script,) = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()
    set_seed(script.seed)

    tokenizer = AutoTokenizer.from_pretrained(script.model_name)
    model = AutoModelForCausalLM.from_pretrained(script.model_name, attn_implementation="sdpa")
    ref_model = AutoModelForCausalLM.from_pretrained(script.model_name, attn_implementation="sdpa")
    model.config.use_cache = False

    def format_pair(row):
        messages = [{"role": "user", "content": row["question"]}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False)
        return {
            "prompt": prompt,
            "chosen": row["better"],
            "rejected": row["worse"],
        }

    data = load_dataset("json", data_files={"train": script.train_file, "eval": script.eval_file})
    data = data.map(format_pair, remove_columns=data["train"].column_names)

    config = DPOConfig(
        output_dir=script.output_dir,
        beta=script.beta,
        max_length=1024,
        max_prompt_length=512,
        max_seq_length=1024,
        precompute_ref_log_probs=False,
        num_train_epochs=script.epochs,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=4,
        learning_rate=script.learning_rate,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        bf16=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        optim="adamw_torch_fused",
        dataloader_num_workers=2,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        report_to="tensorboard",
        seed=script.seed,
    )

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=config,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=script.resume)
    trainer.save_model(script.output_dir)


if __name__ == "__main__":
    main()
