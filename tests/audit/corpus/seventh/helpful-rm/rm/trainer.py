import time

import torch
import torch.nn.functional as F
from transformers import Trainer, TrainerCallback


class PairTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        scores = model(**inputs).logits.squeeze(-1).float()
        good, bad = scores.chunk(2)
        loss = -F.logsigmoid(good - bad).mean()
        return (loss, {"margin": good - bad}) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, out = self.compute_loss(model, inputs, return_outputs=True)
        margin = out["margin"]
        return loss, margin, torch.ones_like(margin)


class TokenRate(TrainerCallback):
    """Logs the token throughput of the job, for the cost sheet."""

    def __init__(self, max_length):
        self.max_length = max_length
        self.t = None
        self.step = 0

    def on_step_end(self, args, state, control, **kw):
        # the first steps are slow
        if state.global_step == 10:
            self.t, self.step = time.perf_counter(), state.global_step

    def on_log(self, args, state, control, logs=None, **kw):
        if self.t is None or state.global_step == self.step or not state.is_world_process_zero:
            return
        n = state.global_step - self.step
        pairs = n * args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        rate = pairs * 2 * self.max_length / (time.perf_counter() - self.t)
        print(f"[rate] {rate:,.0f} tokens/s")
