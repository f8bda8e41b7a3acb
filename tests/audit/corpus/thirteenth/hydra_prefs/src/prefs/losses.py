import torch
import torch.nn.functional as F


def sequence_logps(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    logps = logits[:, :-1].float().log_softmax(dim=-1)
    targets = batch["labels"][:, 1:]
    mask = targets != -100
    picked = logps.gather(-1, targets.masked_fill(~mask, 0).unsqueeze(-1)).squeeze(-1)
    return (picked * mask).sum(-1)


def dpo_loss(policy_logps, ref_logps, beta):
    pol_chosen, pol_rejected = policy_logps.chunk(2)
    ref_chosen, ref_rejected = ref_logps.chunk(2)
    margin = beta * ((pol_chosen - ref_chosen) - (pol_rejected - ref_rejected))
    return -F.logsigmoid(margin).mean(), (margin > 0).float().mean()
