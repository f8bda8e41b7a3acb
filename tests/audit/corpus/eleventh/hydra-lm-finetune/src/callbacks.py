import time

from transformers import TrainerCallback


class ThroughputCallback(TrainerCallback):
    """Prints tokens per second at every log."""

    def __init__(self, max_length, skip_steps=20):
        self.max_length = max_length
        self.skip_steps = skip_steps
        self.t0 = None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.skip_steps:
            self.t0 = time.perf_counter()
            self.step0 = state.global_step

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.t0 is None or state.global_step <= self.step0 or not state.is_world_process_zero:
            return
        steps = state.global_step - self.step0
        samples = steps * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        tokens = samples * self.max_length
        print(f"throughput: {tokens / (time.perf_counter() - self.t0):,.0f} tokens/s")
