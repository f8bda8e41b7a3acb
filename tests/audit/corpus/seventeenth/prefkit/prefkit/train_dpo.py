import hydra
import torch
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from transformers.trainer_utils import get_last_checkpoint
from trl import DPOConfig, DPOTrainer

from prefkit.data import build_pairs


@hydra.main(version_base=None, config_path="../conf", config_name="config")
def main(cfg: DictConfig):
    set_seed(cfg.train.seed)
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)
    model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name, attn_implementation=cfg.model.attn_implementation, use_cache=False
    )
    ref_model = AutoModelForCausalLM.from_pretrained(
        cfg.model.name,
        attn_implementation=cfg.model.attn_implementation,
        torch_dtype=torch.bfloat16,
    )
    pairs = build_pairs(cfg.data, tokenizer)

    args = DPOConfig(
        output_dir=cfg.train.output_dir,
        beta=cfg.train.beta,
        learning_rate=cfg.train.learning_rate,
        num_train_epochs=cfg.train.epochs,
        per_device_train_batch_size=cfg.train.batch_size,
        per_device_eval_batch_size=cfg.train.batch_size,
        gradient_accumulation_steps=cfg.train.grad_accum,
        max_length=cfg.train.max_length,
        max_prompt_length=cfg.train.max_prompt_length,
        precompute_ref_log_probs=cfg.train.precompute_ref_log_probs,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        optim="adamw_torch_fused",
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
        eval_strategy="steps",
        eval_steps=200,
        save_steps=200,
        save_total_limit=2,
        logging_steps=10,
        dataset_num_proc=4,
        dataloader_num_workers=2,
        seed=cfg.train.seed,
        report_to="none",
    )
    trainer = DPOTrainer(
        model,
        ref_model,
        args=args,
        train_dataset=pairs["train"],
        eval_dataset=pairs["test"],
        tokenizer=tokenizer,
    )
    try:
        last = get_last_checkpoint(args.output_dir)
    except FileNotFoundError:
        last = None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()


if __name__ == "__main__":
    main()
