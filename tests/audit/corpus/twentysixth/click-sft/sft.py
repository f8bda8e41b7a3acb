import click
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import SFTConfig, SFTTrainer

from constants import BASE, TARGETS, TRAINING


def load_data(path):
    def split(row):
        *history, last = row["messages"]
        return {"prompt": history, "completion": [last]}

    ds = load_dataset("json", data_files=path, split="train")
    return ds.map(split, num_proc=4, remove_columns=ds.column_names)


@click.command()
@click.option("--data", "data_path", required=True, type=click.Path(exists=True))
@click.option("--out", "out_dir", default="out/sft")
@click.option("--epochs", default=2, show_default=True)
@click.option("--rank", default=16, show_default=True)
@click.option("--resume/--no-resume", default=False)
def main(data_path, out_dir, epochs, rank, resume):
    cfg = SFTConfig(
        output_dir=out_dir,
        num_train_epochs=epochs,
        gradient_checkpointing=False,
        completion_only_loss=True,
        **TRAINING,
    )
    set_seed(cfg.seed)
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model.config.use_cache = False

    trainer = SFTTrainer(
        model=model,
        args=cfg,
        train_dataset=load_data(data_path),
        processing_class=tok,
        peft_config=LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=0.05,
            target_modules=TARGETS,
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(out_dir)
    tok.save_pretrained(out_dir)


if __name__ == "__main__":
    main()
