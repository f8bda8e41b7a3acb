from dataclasses import dataclass, field
from typing import Optional

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="Qwen/Qwen2.5-1.5B-Instruct")
    dataset_path: str = field(default="data/pairs.jsonl", metadata={"help": "rows with prompt, chosen, rejected"})
    eval_size: int = field(default=200)
    resume: Optional[str] = field(default=None)


def to_messages(row):
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


def main():
    parser = HfArgumentParser((ScriptArguments, DPOConfig))
    script_args, dpo_args = parser.parse_args_into_dataclasses()

    model_kwargs = dict(
        device_map="auto",
        trust_remote_code=True,
    )
    model = AutoModelForCausalLM.from_pretrained(script_args.model_name, **model_kwargs)
    ref_model = AutoModelForCausalLM.from_pretrained(script_args.model_name, **model_kwargs)
    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)

    dataset = load_dataset("json", data_files=script_args.dataset_path, split="train")
    dataset = dataset.map(to_messages, num_proc=8)
    split = dataset.train_test_split(test_size=script_args.eval_size, seed=dpo_args.seed)

    trainer = DPOTrainer(
        model=model,
        ref_model=ref_model,
        args=dpo_args,
        train_dataset=split["train"],
        eval_dataset=split["test"],
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=script_args.resume)
    trainer.save_model(dpo_args.output_dir)


if __name__ == "__main__":
    main()
