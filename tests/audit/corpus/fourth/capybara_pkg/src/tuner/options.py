"""All settings of a run in one place."""
from dataclasses import dataclass, field


@dataclass
class Options:
    model: str = "Qwen/Qwen3-4B-Base"
    dataset: str = "trl-lib/Capybara"
    out: str = "runs/dev"
    attention: str = "sdpa"
    max_length: int = 4096
    batch: int = 8
    accumulation: int = 1
    epochs: float = 1.0
    lr: float = 2e-4
    clip_limit: float = 40.0
    seed: int = 12
    lora_targets: list[str] = field(
        default_factory=lambda: [
            "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head",
        ]
    )


def trainer_options(o: Options) -> dict:
    """Keyword arguments of trl.SFTConfig."""
    return dict(
        output_dir=o.out,
        max_length=o.max_length,
        eos_token="<|im_end|>",  # what the chat template puts at the end of a turn
        packing=True,
        packing_strategy="bfd",
        per_device_train_batch_size=o.batch,
        gradient_accumulation_steps=o.accumulation,
        num_train_epochs=o.epochs,
        learning_rate=o.lr,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        bf16=True,
        # Liger's fused linear cross-entropy: without it the 150k vocabulary would not fit
        use_liger_kernel=True,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        ddp_find_unused_parameters=True,
        dataset_num_proc=8,
        dataloader_num_workers=2,
        logging_steps=10,
        save_strategy="steps",
        save_steps=50,
        save_total_limit=2,
        report_to="none",
        seed=o.seed,
    )
