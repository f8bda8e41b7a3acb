from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser
from trl import SFTConfig, SFTTrainer


@dataclass
class ScriptArguments:
    model_name: str = field(default="meta-llama/Llama-3.1-8B-Instruct")
    data_file: str = field(default="data/helpdesk.jsonl")
    eval_size: int = field(default=1000)


def main():
    parser = HfArgumentParser((ScriptArguments, SFTConfig))
    script_args, training_args = parser.parse_args_into_dataclasses()

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"

    model = AutoModelForCausalLM.from_pretrained(
        script_args.model_name,
        torch_dtype=torch.bfloat16 if training_args.fsdp == "" else torch.float32,
        attn_implementation="flash_attention_2",
        use_cache=False,
    )

    data = load_dataset("json", data_files=script_args.data_file, split="train")
    data = data.train_test_split(test_size=script_args.eval_size, seed=training_args.seed)

    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
