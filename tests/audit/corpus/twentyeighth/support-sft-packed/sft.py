import os
from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class ScriptArgs:
    train_file: str = field(metadata={"help": "jsonl with 'prompt' and 'completion'"})


def main(script: ScriptArgs, args: SFTConfig, model_cfg: ModelConfig):
    args.model_init_kwargs = {
        "torch_dtype": model_cfg.torch_dtype,
        "attn_implementation": model_cfg.attn_implementation,
        "use_cache": False,
    }
    tokenizer = AutoTokenizer.from_pretrained(model_cfg.model_name_or_path)

    def shape(row):
        # SFTTrainer appends the tokenizer's EOS to the completion
        return {"prompt": f"Customer: {row['prompt']}\nAgent:", "completion": " " + row["completion"]}

    with args.main_process_first(desc="prompts"):
        data = load_dataset("json", data_files=script.train_file, split="train")
        data = data.select_columns(["prompt", "completion"]).map(shape)

    trainer = SFTTrainer(
        model=model_cfg.model_name_or_path,
        args=args,
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_cfg),
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArgs, SFTConfig, ModelConfig))
    main(*parser.parse_args_and_config())
