import os
from dataclasses import dataclass

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config


@dataclass
class Data:
    pairs: str = "data/pairs.jsonl"
    holdout: int = 400


def to_chat(r):
    return {
        "prompt": [{"role": "user", "content": f"Summarise in two sentences:\n\n{r['text']}"}],
        "chosen": [{"role": "assistant", "content": r["better"]}],
        "rejected": [{"role": "assistant", "content": r["worse"]}],
    }


def main():
    data, cfg, m = TrlParser((Data, DPOConfig, ModelConfig)).parse_args_and_config()
    ds = load_dataset("json", data_files=data.pairs, split="train")
    ds = ds.map(to_chat, remove_columns=ds.column_names).train_test_split(test_size=data.holdout, seed=cfg.seed)

    tok = AutoTokenizer.from_pretrained(m.model_name_or_path)
    # no device here: the Trainer moves it to this process's GPU
    model = AutoModelForCausalLM.from_pretrained(
        m.model_name_or_path, dtype=m.dtype, attn_implementation=m.attn_implementation
    )
    trainer = DPOTrainer(
        model=model,
        args=cfg,
        train_dataset=ds["train"],
        eval_dataset=ds["test"],
        processing_class=tok,
        peft_config=get_peft_config(m),
    )
    last = get_last_checkpoint(cfg.output_dir) if os.path.isdir(cfg.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(os.path.join(cfg.output_dir, "final"))


if __name__ == "__main__":
    main()
