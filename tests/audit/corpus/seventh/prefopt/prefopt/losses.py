import torch
import torch.nn.functional as F

from .data import IGNORE


def sequence_logps(model, batch):
    """Sum of the log-probabilities of the labelled tokens, one number a row."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:].clone()
    mask = labels != IGNORE
    labels[~mask] = 0
    logps = torch.log_softmax(logits[:, :-1].float(), dim=-1)
    picked = logps.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (picked * mask).sum(-1)


def dpo(policy, reference, beta):
    pc, pr = policy.chunk(2)
    rc, rr = reference.chunk(2)
    margin = beta * ((pc - rc) - (pr - rr))
    loss = -F.logsigmoid(margin).mean()
    return loss, (beta * (pc - rc)).detach(), (beta * (pr - rr)).detach()
