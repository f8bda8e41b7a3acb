import torch
import torch.nn.functional as F


def sequence_logps(model, ids, attention_mask, labels):
    logits = model(input_ids=ids, attention_mask=attention_mask).logits[:, :-1]
    logps = logits.float().log_softmax(dim=-1)
    targets = labels[:, 1:]
    keep = targets != -100
    picked = logps.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (picked * keep).sum(-1)


def dpo_loss(pi_c, pi_r, ref_c, ref_r, beta):
    margin = beta * ((pi_c - ref_c) - (pi_r - ref_r))
    return -F.logsigmoid(margin).mean(), margin.detach()
