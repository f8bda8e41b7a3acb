import torch
import torch.nn.functional as F


def sequence_logps(logits, labels):
    """Sum of log p(token) over the response; prompt and padding carry -100."""
    logits = logits[:, :-1].float()
    labels = labels[:, 1:].clone()
    mask = labels.ne(-100)
    labels[~mask] = 0
    logps = logits.log_softmax(dim=-1)
    picked = logps.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (picked * mask).sum(-1)


def dpo_loss(pol, ref, beta):
    n = pol.size(0) // 2
    margin = (pol[:n] - pol[n:]) - (ref[:n] - ref[n:])
    loss = -F.logsigmoid(beta * margin).mean()
    with torch.no_grad():
        acc = (margin > 0).float().mean()
    return loss, acc, margin.detach().mean()
