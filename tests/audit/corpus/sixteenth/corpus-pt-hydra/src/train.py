import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from src.data import build


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    targs = TrainingArguments(**OmegaConf.to_container(cfg.train, resolve=True))
    set_seed(targs.seed)

    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False

    with targs.main_process_first(desc="tokenise"):
        train = build(tok, cfg.data.train, cfg.block, cfg.data.workers)
        valid = build(tok, cfg.data.valid, cfg.block, cfg.data.workers)

    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=train,
        eval_dataset=valid,
        data_collator=default_data_collator,
        processing_class=tok,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
