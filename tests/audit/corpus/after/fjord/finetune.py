import torch
import torch.nn.functional as F
from datasets import load_from_disk
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

MODEL = "Qwen/Qwen2.5-3B"
OUT = "out/fjord"


class WeightedTrainer(Trainer):
    """Gives later turns a higher weight."""

    def __init__(self, *args, tail_weight=1.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.tail_weight = tail_weight
        self.history = []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits.float()

        per_token = F.cross_entropy(
            logits.view(-1, logits.size(-1)),
            labels.view(-1),
            ignore_index=-100,
            reduction="none",
        ).view(labels.shape)

        width = labels.size(1)
        ramp = torch.linspace(1.0, self.tail_weight, width, device=labels.device)
        keep = (labels != -100).float()
        weighted = (per_token * ramp * keep).sum()
        loss = weighted / (num_items_in_batch if num_items_in_batch is not None else keep.sum())

        self.history.append(loss.item())
        if torch.isnan(loss):
            raise RuntimeError("loss became nan")
        return (loss, outputs) if return_outputs else loss


class ClearCache(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        torch.cuda.empty_cache()


def main():
    set_seed(11)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    data = load_from_disk("data/tokenized")

    args = TrainingArguments(
        output_dir=OUT,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=8,
        learning_rate=1e-5,
        warmup_steps=100,
        lr_scheduler_type="cosine",
        fp16=True,
        optim="adamw_torch_fused",
        activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": False},
        train_sampling_strategy="group_by_length",
        dataloader_num_workers=4,
        logging_steps=25,
        eval_strategy="steps",
        eval_steps=500,
        prediction_loss_only=True,
        save_steps=500,
        save_total_limit=2,
        report_to="tensorboard",
        seed=11,
    )
    trainer = WeightedTrainer(
        model=model,
        args=args,
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True, pad_to_multiple_of=8, label_pad_token_id=-100),
        processing_class=tokenizer,
        callbacks=[ClearCache()],
    )
    trainer.train()
    metrics = trainer.evaluate()
    print("weighted validation loss", metrics["eval_loss"])
    trainer.save_model(OUT + "/final")


if __name__ == "__main__":
    main()
