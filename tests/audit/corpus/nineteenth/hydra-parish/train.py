from itertools import chain

import hydra
from datasets import load_dataset
from hydra.utils import to_absolute_path
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import get_last_checkpoint


def blocks(tokenizer, size):
    def fn(batch):
        ids = [row + [tokenizer.eos_token_id] for row in tokenizer(batch["text"])["input_ids"]]
        flat = list(chain.from_iterable(ids))
        n = len(flat) // size * size
        rows = [flat[i : i + size] for i in range(0, n, size)]
        return {"input_ids": rows, "labels": [list(r) for r in rows]}

    return fn


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig):
    args = TrainingArguments(**OmegaConf.to_container(cfg.trainer, resolve=True))
    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    raw = load_dataset(
        "text",
        data_files={
            "train": to_absolute_path(cfg.data.train),
            "eval": to_absolute_path(cfg.data.eval),
        },
    )
    with args.main_process_first():
        data = raw.map(
            blocks(tokenizer, cfg.data.block_size),
            batched=True,
            batch_size=5000,
            remove_columns=["text"],
            num_proc=cfg.data.num_proc,
            load_from_cache_file=False,
        )

    model = AutoModelForCausalLM.from_pretrained(cfg.model)
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["eval"],
        data_collator=default_data_collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))
    trainer.save_model()


if __name__ == "__main__":
    main()
