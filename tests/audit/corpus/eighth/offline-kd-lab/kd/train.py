import json
import os
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, default_data_collator
from transformers.trainer_utils import get_last_checkpoint

from kd.data import Shards

SLICE = 2048


def slice_loss(h, weight, target, top_ids, top_logp, T, hard):
    """Sum over one slice of answer tokens; the logits live only in here."""
    logits = F.linear(h, weight).float()
    ce = F.cross_entropy(logits, target, reduction="sum")
    logz = torch.logsumexp(logits / T, dim=-1, keepdim=True)
    s = logits.gather(-1, top_ids) / T - logz
    t = torch.log_softmax(top_logp.float() / T, dim=-1)
    kl = (t.exp() * (t - s)).sum() * T * T
    return hard * ce + (1 - hard) * kl


class KDTrainer(Trainer):
    def __init__(self, *args, T, hard, **kw):
        super().__init__(*args, **kw)
        self.T, self.hard = T, hard
        self.model_accepts_loss_kwargs = True       # we divide by num_items_in_batch ourselves

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        top_ids, top_logp = inputs.pop("top_ids"), inputs.pop("top_logp")
        labels = inputs.pop("labels")
        h = model(**inputs).last_hidden_state[:, :-1]
        keep = labels[:, 1:] != -100
        h, target = h[keep], labels[:, 1:][keep]
        top_ids, top_logp = top_ids[:, 1:][keep], top_logp[:, 1:][keep]
        weight = self.head()
        total = h.new_zeros((), dtype=torch.float32)
        for i in range(0, h.size(0), SLICE):
            j = slice(i, i + SLICE)
            total = total + checkpoint(slice_loss, h[j], weight, target[j], top_ids[j], top_logp[j], self.T, self.hard, use_reentrant=False)
        n = num_items_in_batch if num_items_in_batch is not None else target.numel()
        loss = total / n
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes
        return (loss, {"loss": loss}) if return_outputs else loss

    def head(self):
        # tied: the head is the embedding, which takes part in the wrapped forward
        return self.accelerator.unwrap_model(self.model).get_input_embeddings().weight


def main():
    with open(sys.argv[1]) as fh:
        conf = json.load(fh)
    for pair in sys.argv[2:]:                       # key=value of the trainer's part
        key, value = pair.split("=", 1)
        conf["trainer"][key] = json.loads(value)
    args = TrainingArguments(average_tokens_across_devices=True, **conf["trainer"])
    if args.process_index == 0:
        print("autocast", os.environ.get("ACCELERATE_MIXED_PRECISION"), "accumulation", args.gradient_accumulation_steps, flush=True)

    full = AutoModelForCausalLM.from_pretrained(conf["student"], torch_dtype=torch.float32, attn_implementation="sdpa")
    assert full.config.tie_word_embeddings
    model = full.model                              # without the head
    model.config.use_cache = False

    trainer = KDTrainer(
        model=model, args=args, train_dataset=Shards(conf["shards"]), data_collator=default_data_collator,
        processing_class=AutoTokenizer.from_pretrained(conf["student"]), T=conf["temperature"], hard=conf["hard_weight"],
    )
    last = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model()                            # the head is tied, AutoModelForCausalLM reads this


if __name__ == "__main__":
    main()
