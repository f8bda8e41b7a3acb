import time

from transformers import TrainerCallback


class ThroughputCallback(TrainerCallback):
    """Prints tokens per second since the last log."""

    def __init__(self, max_seq_length):
        self.max_seq_length = max_seq_length
        self.mark = None

    def on_log(self, args, state, control, **kwargs):
        now = time.perf_counter()
        if self.mark is not None and state.is_world_process_zero:
            step, then = self.mark
            rows = (state.global_step - step) * args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            tokens = rows * self.max_seq_length
            if rows:
                print(f"step {state.global_step}: {tokens / (now - then):,.0f} tokens/s")
        self.mark = (state.global_step, now)
