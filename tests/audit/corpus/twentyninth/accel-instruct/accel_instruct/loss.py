import torch


def token_loss(logits, labels):
    """Mean negative log-likelihood of the answer's tokens."""
    logp = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    target = labels[:, 1:]
    mask = target != -100
    picked = logp.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * mask).sum() / mask.sum().clamp(min=1)
