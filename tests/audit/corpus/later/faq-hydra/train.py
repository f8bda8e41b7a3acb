import logging

import hydra
import torch
from datasets import load_dataset
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

logger = logging.getLogger(__name__)


def build_dataset(cfg: DictConfig, tokenizer):
    files = {"train": cfg.data.train, "test": cfg.data.test}
    data = load_dataset("json", data_files=files)

    def encode(batch):
        texts = [
            f"Question: {q}\nAnswer: {a}{tokenizer.eos_token}"
            for q, a in zip(batch["question"], batch["answer"], strict=True)
        ]
        return tokenizer(
            texts,
            truncation=True,
            max_length=cfg.data.max_length,
            padding="max_length",
        )

    return data.map(
        encode,
        batched=True,
        num_proc=cfg.data.num_proc,
        remove_columns=data["train"].column_names,
        desc="tokenize",
    )


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    logger.info("\n%s", OmegaConf.to_yaml(cfg))

    tokenizer = AutoTokenizer.from_pretrained(cfg.model)
    tokenizer.pad_token = tokenizer.eos_token

    model = AutoModelForCausalLM.from_pretrained(
        cfg.model,
        dtype=torch.float32,  # master weights; bf16 autocast comes from the trainer
        attn_implementation="sdpa",
    )
    data = build_dataset(cfg, tokenizer)

    args = TrainingArguments(**OmegaConf.to_container(cfg.train, resolve=True))
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=cfg.resume)
    trainer.save_model()
    logger.info("final: %s", trainer.evaluate())


if __name__ == "__main__":
    main()
