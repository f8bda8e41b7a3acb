import os
import sys
from dataclasses import dataclass, field

from peft import LoraConfig
from transformers import AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer

from helpdesk.data import load_tickets


@dataclass
class ScriptArguments:
    model_name: str = "Qwen/Qwen2.5-7B-Instruct"
    attn_implementation: str = "sdpa"
    train_file: str = "data/tickets.jsonl"
    lora_r: int = 0
    lora_targets: list[str] = field(default_factory=list)


def build_peft(script_args):
    if script_args.lora_r == 0:
        return None
    return LoraConfig(
        r=script_args.lora_r,
        lora_alpha=2 * script_args.lora_r,
        lora_dropout=0.05,
        target_modules=script_args.lora_targets,
        task_type="CAUSAL_LM",
    )


def main():
    parser = HfArgumentParser((ScriptArguments, SFTConfig))
    script_args, sft_args = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
    lora = script_args.lora_r > 0
    sft_args.model_init_kwargs = {
        "torch_dtype": "bfloat16" if lora else "float32",
        "attn_implementation": script_args.attn_implementation,
        "device_map": "auto",
    }

    tokenizer = AutoTokenizer.from_pretrained(script_args.model_name)
    trainer = SFTTrainer(
        model=script_args.model_name,
        args=sft_args,
        train_dataset=load_tickets(script_args.train_file),
        processing_class=tokenizer,
        peft_config=build_peft(script_args),
    )
    last = get_last_checkpoint(sft_args.output_dir) if os.path.isdir(sft_args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(sft_args.output_dir)


if __name__ == "__main__":
    main()
