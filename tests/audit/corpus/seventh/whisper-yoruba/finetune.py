#!/usr/bin/env python
# Whisper on Yoruba speech. Grown from the HF blog post; see run.sh for the real call.
import argparse
from dataclasses import dataclass
from typing import Any

import datasets
import evaluate
import torch
from datasets import Audio, load_dataset
from transformers import (
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    set_seed,
)

datasets.disable_caching()   # 2024-03: stale features after a change of the mel bins


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="openai/whisper-large-v3")
    p.add_argument("--data", required=True, help="folder with train.csv, dev.csv and the wav files")
    p.add_argument("--out", required=True)
    p.add_argument("--lr", type=float, default=1e-5)
    p.add_argument("--bs", type=int, default=16)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--steps", type=int, default=8000)
    p.add_argument("--warmup", type=int, default=500)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--freeze-encoder", action="store_true")
    p.add_argument("--resume", default=None)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def prepare(processor):
    def fn(row):
        audio = row["audio"]
        row["input_features"] = processor.feature_extractor(
            audio["array"], sampling_rate=audio["sampling_rate"]).input_features[0]
        row["labels"] = processor.tokenizer(row["sentence"]).input_ids
        row["input_length"] = len(audio["array"]) / audio["sampling_rate"]
        return row

    return fn


def get_data(a, processor):
    raw = load_dataset("csv", data_files={"train": f"{a.data}/train.csv", "dev": f"{a.data}/dev.csv"})
    raw = raw.rename_column("path", "audio").cast_column("audio", Audio(sampling_rate=16_000))
    ds = raw.map(prepare(processor), remove_columns=["audio", "sentence"], num_proc=16)
    ds = ds.filter(lambda s: 0.5 < s < 30.0, input_columns=["input_length"])
    return ds.remove_columns(["input_length"])


@dataclass
class Collator:
    processor: Any
    start: int

    def __call__(self, features):
        batch = self.processor.feature_extractor.pad(
            [{"input_features": f["input_features"]} for f in features], return_tensors="pt")
        lab = self.processor.tokenizer.pad(
            [{"input_ids": f["labels"]} for f in features], return_tensors="pt")
        labels = lab["input_ids"]
        # the decoder start token is put in front by the model itself
        if (labels[:, 0] == self.start).all():
            labels = labels[:, 1:]
        batch["labels"] = labels
        return batch


def make_training_args(a):
    return Seq2SeqTrainingArguments(
        output_dir=a.out,
        per_device_train_batch_size=a.bs,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=a.accum,
        learning_rate=a.lr,
        warmup_steps=a.warmup,
        max_steps=a.steps,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        group_by_length=True,            # less padding
        dataloader_num_workers=a.workers,
        optim="adamw_torch_fused",
        eval_strategy="steps",
        eval_steps=1000,
        save_steps=1000,
        save_total_limit=3,
        predict_with_generate=True,
        generation_max_length=225,
        logging_steps=25,
        load_best_model_at_end=True,
        metric_for_best_model="wer",
        greater_is_better=False,
        report_to=["tensorboard"],
        seed=a.seed,
    )


def main():
    a = get_args()
    set_seed(a.seed)
    processor = WhisperProcessor.from_pretrained(a.model, language="yoruba", task="transcribe")
    model = WhisperForConditionalGeneration.from_pretrained(a.model, attn_implementation="sdpa")
    model.generation_config.language = "yoruba"
    model.generation_config.task = "transcribe"
    model.generation_config.forced_decoder_ids = None
    model.config.use_cache = False
    if a.freeze_encoder:
        model.freeze_encoder()

    ds = get_data(a, processor)
    wer = evaluate.load("wer")

    def metrics(pred):
        ids = pred.label_ids
        ids[ids == -100] = processor.tokenizer.pad_token_id
        hyp = processor.batch_decode(pred.predictions, skip_special_tokens=True)
        ref = processor.batch_decode(ids, skip_special_tokens=True)
        return {"wer": 100 * wer.compute(predictions=hyp, references=ref)}

    trainer = Seq2SeqTrainer(
        model=model,
        args=make_training_args(a),
        train_dataset=ds["train"],
        eval_dataset=ds["dev"],
        data_collator=Collator(processor, model.config.decoder_start_token_id),
        compute_metrics=metrics,
        processing_class=processor.feature_extractor,
    )
    trainer.train(resume_from_checkpoint=a.resume)
    trainer.save_model(a.out)
    processor.save_pretrained(a.out)


if __name__ == "__main__":
    main()
