import os
from dataclasses import dataclass

from datasets import load_from_disk
from peft import LoraConfig
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class Run:
    model: str = "Qwen/Qwen2.5-3B"
    data: str = "data/assistant-v2"
    rows_per_update: int = 16
    expected_gpus: int = 4


def main():
    run, cfg = TrlParser((Run, SFTConfig)).parse_args_and_config()

    # accelerate launch has set it by now; a plain python run is one GPU
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world != run.expected_gpus:
        print(f"warning: {world} GPUs, {run.expected_gpus} expected; the accumulation is adapted")
    per_step = cfg.per_device_train_batch_size * world
    if run.rows_per_update % per_step:
        raise SystemExit(f"{run.rows_per_update} is not a multiple of {per_step}")
    cfg.gradient_accumulation_steps = run.rows_per_update // per_step

    cfg.model_init_kwargs = {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"}
    ds = load_from_disk(run.data)

    trainer = SFTTrainer(
        model=run.model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        peft_config=LoraConfig(r=32, lora_alpha=64, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(os.path.join(cfg.output_dir, "final"))


if __name__ == "__main__":
    main()
