import os
from dataclasses import dataclass

from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class DataArguments:
    model_id: str = "meta-llama/Llama-3.1-8B-Instruct"
    train_file: str = "data/chats.jsonl"
    global_rows: int = 64


def main():
    data_args, config = TrlParser((DataArguments, SFTConfig)).parse_args_and_config()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    config.gradient_accumulation_steps = max(
        1, data_args.global_rows // (config.per_device_train_batch_size * world)
    )
    config.model_init_kwargs = {
        "torch_dtype": "bfloat16",
        "attn_implementation": "flash_attention_2",
        "use_cache": False,
    }
    tokenizer = AutoTokenizer.from_pretrained(data_args.model_id)
    tokenizer.pad_token = "<|finetune_right_pad_id|>"
    with config.main_process_first():
        dataset = load_dataset("json", data_files=data_args.train_file, split="train")
        dataset = dataset.select_columns(["messages"])

    trainer = SFTTrainer(
        model=data_args.model_id,
        args=config,
        train_dataset=dataset,
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=32, lora_alpha=64, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    last = get_last_checkpoint(config.output_dir) if os.path.isdir(config.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
