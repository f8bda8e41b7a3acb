"""What the policy is measured against: the model that training starts from."""

from dynotune.config.keys.topic import Topic


class ReferenceConfig(Topic):
    precompute_ref_log_probs: bool | None = None
    """Compute the reference's log-probabilities once, before the first step, and keep them for later runs. `false`:
    in every step, with the same result, which is slower and needs a new adapter that can be switched off, under which
    nothing is trained; without one it is once all the same, and said. Default: once."""

    disable_dropout: bool = True
    """No dropout, in the model that is trained either."""
