"""How fast such a run was on such a device: the share of the device's peak that a run of ours reached there, for this model.

Speed does not carry over between models; the share of the peak does, as long as a step holds about as many tokens. FLOPs of
a token are this run's own.
"""

from dynotune.profile.analysis.findings import Expected
from dynotune.profile.analysis.measured import nearest_speed
from dynotune.profile.records.record import Record


def expectation(record: Record, rate: float | None) -> tuple[Expected | None, str]:
    """And why there is none. rate: real tokens a second of all devices."""
    device = record.environment.machine.get("device", "")
    if record.environment.device != "cuda":
        return None, "no speed of a run on a CPU is kept"
    if rate is None:
        return None, "real tokens are not known"
    flops = flops_per_token(record)
    if not flops:
        return None, "the FLOPs of a token of this model are not known"
    world = record.environment.world
    tokens = [one.real_tokens for one in record.timed if one.real_tokens]
    per_step = sum(tokens) / len(tokens) / world
    adapter = bool(record.model.adapter_ranks)
    found = nearest_speed(str(device), record.method, adapter, per_step)
    if found is None:
        how = "LoRA" if adapter else "full fine-tuning"
        return None, f"no {record.method} run with {how} and about {per_step:,.0f} tokens a step is kept for {device}"
    speed = found.mfu * found.peak_tflops * 1e12 / flops
    what = (
        f"{100 * found.mfu:.0f} % strict MFU, which {found.method} of the {found.model} reached with {found.tokens_a_step:,}"
        f" tokens a step ({found.source})"
    )
    return Expected(speed, what, rate / world / speed), ""


def flops_per_token(record: Record) -> float | None:
    """Strict, forward and backward, of a real token: counted where the run did, else four for a frozen weight and six for a
    trained one, without attention and with the embedding taken for the head."""
    counted = [(one.model_flops, one.real_tokens) for one in record.timed if one.model_flops and one.real_tokens]
    if counted:
        return sum(flops for flops, _ in counted) / sum(tokens for _, tokens in counted)
    model = record.model
    if not model.parameters or model.vocabulary is None or model.hidden is None or model.quantised:
        return None
    table = model.vocabulary * model.hidden
    return 4.0 * (model.parameters - model.trained) + 6.0 * model.trained - 2.0 * table
