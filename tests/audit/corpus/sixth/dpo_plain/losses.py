import torch
import torch.nn.functional as F


def sequence_logps(model, input_ids, attention_mask, labels):
    """Sum of the log-probabilities of the labelled tokens, one number per row."""
    logits = model(input_ids=input_ids, attention_mask=attention_mask).logits
    logps = F.log_softmax(logits[:, :-1].float(), dim=-1)
    labels = labels[:, 1:]
    mask = labels != -100
    picked = torch.gather(logps, 2, labels.clamp(min=0).unsqueeze(2)).squeeze(2)
    return (picked * mask).sum(-1)


def dpo_loss(pi_c, pi_r, ref_c, ref_r, beta):
    logits = (pi_c - pi_r) - (ref_c - ref_r)
    loss = -F.logsigmoid(beta * logits).mean()
    return loss, beta * (pi_c - ref_c).detach(), beta * (pi_r - ref_r).detach()
