import time

from transformers import TrainerCallback


class Speed(TrainerCallback):
    """Prints tokens/s between two logs (skips the first window)."""

    def __init__(self):
        self.t = self.step = None

    def on_log(self, args, state, control, logs=None, **kw):
        if not state.is_world_process_zero or "loss" not in (logs or {}):
            return
        now = time.perf_counter()
        if self.t is not None:
            pairs = (state.global_step - self.step) * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            tokens = pairs * 2 * args.max_length
            print(f"[speed] {tokens / (now - self.t):.0f} tokens/s")
        self.t, self.step = now, state.global_step
