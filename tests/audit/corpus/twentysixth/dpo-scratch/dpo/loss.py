import torch
import torch.nn.functional as F


def sequence_logps(model, batch):
    """Sum of log-probabilities of the response tokens of every row."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    logps = logits[:, :-1].float().log_softmax(-1)
    keep = labels != -100
    picked = logps.gather(2, labels.masked_fill(~keep, 0).unsqueeze(2)).squeeze(2)
    return (picked * keep).sum(-1)


def dpo_loss(policy, ref, beta):
    """First half of the rows: chosen. Second half: rejected."""
    pc, pr = policy.chunk(2)
    rc, rr = ref.chunk(2)
    margin = beta * ((pc - rc) - (pr - rr))
    return -F.logsigmoid(margin).mean(), (margin > 0).float().mean()
