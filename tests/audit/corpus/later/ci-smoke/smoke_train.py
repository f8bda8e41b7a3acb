"""Five minutes of CI that prove the data format, the template and the loss mask still fit together.

Not a training script: the model is random and tiny, there is no GPU on the runner, and what is asserted is only that
the loss falls and that the mask covers the answers.
"""

import json
from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

MODEL = "trl-internal-testing/tiny-Qwen2ForCausalLM-2.5"
DATA = Path(__file__).parent / "data" / "smoke.jsonl"


def main() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    dataset = Dataset.from_list(rows)  # prompt and completion, both conversational

    config = SFTConfig(
        output_dir="smoke-out",
        use_cpu=True,  # the runner has no GPU
        bf16=False,  # and bf16 on its CPU is slower than fp32
        model_init_kwargs={"dtype": "float32"},
        gradient_checkpointing=False,  # 2 layers of width 8: nothing to save
        per_device_train_batch_size=len(rows),  # the whole set each step, so the loss has to fall
        max_steps=30,
        max_length=256,
        packing=False,  # eight rows; padding them costs nothing
        learning_rate=1e-2,  # random weights and 30 steps: a usual rate would show no change
        lr_scheduler_type="constant",
        logging_steps=1,  # the assertions below read every step
        save_strategy="no",
        report_to="none",
        dataloader_num_workers=0,  # starting workers takes longer than the run
        dataloader_pin_memory=False,
        seed=0,
    )
    trainer = SFTTrainer(
        model=MODEL,
        args=config,
        train_dataset=dataset,
        processing_class=AutoTokenizer.from_pretrained(MODEL),
    )

    batch = next(iter(trainer.get_train_dataloader()))
    kept = batch["labels"] != -100
    assert kept.any(dim=1).all(), "a row without any target"
    assert not kept[:, 0].any(), "the prompt is in the loss"

    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0], losses
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
