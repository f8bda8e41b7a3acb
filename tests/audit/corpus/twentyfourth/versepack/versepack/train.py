import os

import fire
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator, set_seed
from transformers.trainer_utils import get_last_checkpoint

from . import settings
from .data import packed


def train(path="data/poems.jsonl", out=settings.OUT, **overrides):
    opts = {**settings.TRAINER, **overrides}
    set_seed(opts["seed"])
    tok = AutoTokenizer.from_pretrained(settings.MODEL_ID)
    model = AutoModelForCausalLM.from_pretrained(
        settings.MODEL_ID,
        torch_dtype=torch.float32,
        attn_implementation="sdpa",
        trust_remote_code=True,
    )
    model.config.use_cache = False
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output_dir=out, **opts),
        train_dataset=packed(path, tok, settings.BLOCK),
        data_collator=default_data_collator,
        processing_class=tok,
    )
    last = get_last_checkpoint(out) if os.path.isdir(out) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out)


if __name__ == "__main__":
    fire.Fire(train)
