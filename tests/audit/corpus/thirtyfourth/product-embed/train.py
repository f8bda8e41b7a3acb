import sys
import time

import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

from pairs import encoder, read, train_loader


def embed(model, enc):
    h = model(**enc).last_hidden_state
    m = enc["attention_mask"].unsqueeze(-1)
    return F.normalize((h * m).sum(1).float() / m.sum(1), dim=-1)


def to_gpu(enc):
    return {k: v.cuda(non_blocking=True) for k, v in enc.items()}


@torch.no_grad()
def recall_at_10(model, tok, cfg):
    model.eval()
    rows = {pid: (q, t) for q, pid, t in read(cfg.eval.pairs)}
    rows = list(rows.values())
    encode = encoder(tok, cfg.train.max_len)
    qs, ts = [], []
    for i in range(0, len(rows), 512):
        q, t = encode(rows[i : i + 512])
        with torch.autocast("cuda", dtype=torch.bfloat16):
            qs.append(embed(model, to_gpu(q)))
            ts.append(embed(model, to_gpu(t)))
    q, t = torch.cat(qs), torch.cat(ts)
    top = (q @ t.T).topk(10, dim=-1).indices
    hit = (top == torch.arange(len(rows), device="cuda")[:, None]).any(-1).float().mean()
    model.train()
    return hit.item()


def main():
    cfg = OmegaConf.load(sys.argv[1])
    OmegaConf.set_struct(cfg, True)
    cfg.merge_with_dotlist(sys.argv[2:])
    torch.manual_seed(cfg.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    tok = AutoTokenizer.from_pretrained(cfg.model)
    model = AutoModel.from_pretrained(cfg.model, add_pooling_layer=False).cuda()
    model.train()
    loader = train_loader(cfg, tok)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.optim.lr, weight_decay=0.01, fused=True)
    sched = get_linear_schedule_with_warmup(opt, cfg.optim.warmup, cfg.train.steps)
    target = torch.arange(cfg.train.batch_size, device="cuda")

    best, running, evaluating, start = 0.0, torch.zeros((), device="cuda"), 0.0, None
    for step, (q, t) in enumerate(loader, 1):
        q, t = to_gpu(q), to_gpu(t)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            eq, et = embed(model, q), embed(model, t)
        scores = eq @ et.T / cfg.train.temperature
        loss = (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.clip)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        running += loss.detach()

        if step == 50:
            torch.cuda.synchronize()
            start = time.perf_counter()
        if step % 100 == 0:
            mean = running.item() / 100
            torch.cuda.synchronize()
            rate = (step - 50) * cfg.train.batch_size / (time.perf_counter() - start - evaluating)
            print(f"{step:6d} loss {mean:.4f} lr {sched.get_last_lr()[0]:.2e} {rate:.0f} pairs/s", flush=True)
            running.zero_()
        if step % cfg.eval.every == 0:
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            recall = recall_at_10(model, tok, cfg)
            print(f"{step:6d} recall@10 {recall:.4f}", flush=True)
            if recall > best:
                best = recall
                model.save_pretrained(cfg.out)
                tok.save_pretrained(cfg.out)
            evaluating += time.perf_counter() - t0
        if step == cfg.train.steps:
            break


if __name__ == "__main__":
    main()
