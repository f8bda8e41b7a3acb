import os
from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config


@dataclass
class Data:
    pairs: str = field(metadata={"help": "jsonl: brief, outlines [a, b], pick (0 or 1, null for a tie)"})


def to_pair(row):
    picked, other = row["outlines"][row["pick"]], row["outlines"][1 - row["pick"]]
    return {
        "prompt": [{"role": "user", "content": row["brief"]}],
        "chosen": [{"role": "assistant", "content": picked}],
        "rejected": [{"role": "assistant", "content": other}],
    }


def main():
    data, args, model_args = TrlParser((Data, DPOConfig, ModelConfig)).parse_args_and_config()
    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(
        model_args.model_name_or_path,
        dtype=model_args.dtype,
        attn_implementation=model_args.attn_implementation,
        use_cache=False,
    )

    rows = load_dataset("json", data_files=data.pairs, split="train")
    rows = rows.filter(lambda r: r["pick"] is not None and r["outlines"][0] != r["outlines"][1])
    rows = rows.map(to_pair, remove_columns=rows.column_names)

    trainer = DPOTrainer(
        model=model,
        args=args,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    os.makedirs(args.output_dir, exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
