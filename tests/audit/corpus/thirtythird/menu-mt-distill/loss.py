import torch
import torch.nn.functional as F


def hard_loss(logits, labels):
    return F.cross_entropy(logits.float().reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)


def soft_loss(student, teacher, labels, temperature):
    """KL at the positions that predict a token of the translation."""
    keep = labels[:, 1:] != -100
    width = min(student.size(-1), teacher.size(-1))
    s = student[:, :-1][keep][:, :width].float() / temperature
    t = teacher[:, :-1][keep][:, :width].float() / temperature
    kl = F.kl_div(F.log_softmax(s, -1), F.log_softmax(t, -1), log_target=True, reduction="batchmean")
    return kl * temperature**2


def mixed(student, teacher, labels, alpha=0.5, temperature=2.0):
    return (1 - alpha) * hard_loss(student, labels) + alpha * soft_loss(student, teacher, labels, temperature)
