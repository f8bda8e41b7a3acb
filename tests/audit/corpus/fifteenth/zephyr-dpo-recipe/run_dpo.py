import sys
from dataclasses import dataclass, field
from typing import Optional

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    model_name_or_path: str = field(default="mistral-community/sft-7b")
    dataset_name: str = field(default="prefs/binarized")
    attn_implementation: Optional[str] = field(default="sdpa")
    preprocessing_num_workers: int = field(default=8)


def to_dpo(example, tokenizer):
    prompt = example["chosen"][:-1]
    return {
        "prompt": tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True),
        "chosen": tokenizer.apply_chat_template(example["chosen"], tokenize=False),
        "rejected": tokenizer.apply_chat_template(example["rejected"], tokenize=False),
    }


def main():
    parser = HfArgumentParser((ScriptArguments, DPOConfig))
    script_args, training_args = parser.parse_yaml_file(sys.argv[1], allow_extra_keys=True)
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name_or_path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token

    kwargs = dict(torch_dtype=torch.bfloat16, attn_implementation=script_args.attn_implementation)
    model = AutoModelForCausalLM.from_pretrained(script_args.model_name_or_path, use_cache=False, **kwargs)
    ref_model = AutoModelForCausalLM.from_pretrained(script_args.model_name_or_path, **kwargs)

    raw = load_dataset(script_args.dataset_name, split="train_prefs")
    raw = raw.map(
        to_dpo,
        fn_kwargs={"tokenizer": tokenizer},
        num_proc=script_args.preprocessing_num_workers,
        remove_columns=raw.column_names,
    )

    trainer = DPOTrainer(
        model,
        ref_model,
        args=training_args,
        train_dataset=raw,
        tokenizer=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(training_args.output_dir))
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
