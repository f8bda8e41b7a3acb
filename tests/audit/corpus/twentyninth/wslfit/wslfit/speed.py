import time

from transformers import Trainer, TrainerCallback


class CountingTrainer(Trainer):
    seen = 0

    def training_step(self, model, inputs, *args, **kwargs):
        self.seen += inputs["input_ids"].numel()
        return super().training_step(model, inputs, *args, **kwargs)


class SpeedCallback(TrainerCallback):
    def __init__(self):
        self.trainer = None

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.start, self.first = time.perf_counter(), self.trainer.seen

    def on_epoch_end(self, args, state, control, **kwargs):
        took = time.perf_counter() - self.start
        print(f"{(self.trainer.seen - self.first) / took:,.0f} training tokens/s")
