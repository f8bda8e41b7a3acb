"""DPO for the Kestrel support model.

    torchrun --nproc_per_node 8 run_dpo.py --config configs/dpo_support.yaml
"""
import logging

from datasets import load_from_disk
from transformers import AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser

log = logging.getLogger("kestrel")


def usable(row):
    """Pairs with identical answers carry no signal."""
    return row["chosen"] != row["rejected"] and len(row["prompt"]) > 0


def main():
    parser = TrlParser((ScriptArguments, DPOConfig, ModelConfig))
    script, cfg, model_cfg = parser.parse_args_and_config()

    tokenizer = AutoTokenizer.from_pretrained(model_cfg.model_name_or_path)
    data = load_from_disk(script.dataset_name)
    data = data.filter(usable, num_proc=cfg.dataset_num_proc)
    log.info("train %d  test %d", len(data["train"]), len(data["test"]))

    cfg.model_init_kwargs = {
        "dtype": model_cfg.dtype,
        "attn_implementation": model_cfg.attn_implementation,
    }
    trainer = DPOTrainer(
        model=model_cfg.model_name_or_path,
        args=cfg,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        processing_class=tokenizer,
    )
    last = None
    try:
        last = get_last_checkpoint(cfg.output_dir)
    except FileNotFoundError:
        pass
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(cfg.output_dir)


if __name__ == "__main__":
    main()
