import hydra
import torch
from omegaconf import DictConfig
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup

from prefs.data import build_pairs, make_collate
from prefs.losses import dpo_loss, sequence_logps


@hydra.main(version_base="1.3", config_path="../../conf", config_name="config")
def main(cfg: DictConfig):
    device = torch.device("cuda")
    tokenizer = AutoTokenizer.from_pretrained(cfg.model.name)

    policy = AutoModelForCausalLM.from_pretrained(cfg.model.name, torch_dtype=torch.float32).to(device)
    ref = AutoModelForCausalLM.from_pretrained(cfg.model.name, torch_dtype=torch.bfloat16).to(device).eval()
    ref.requires_grad_(False)
    policy.config.use_cache = False

    pairs = build_pairs(cfg.data.file, tokenizer, cfg.data.max_length)
    loader = DataLoader(
        pairs,
        batch_size=cfg.data.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=make_collate(tokenizer.pad_token_id),
        num_workers=2,
        pin_memory=True,
    )
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=cfg.optimizer.lr, weight_decay=cfg.optimizer.weight_decay, fused=True
    )
    scheduler = get_constant_schedule_with_warmup(optimizer, cfg.optimizer.warmup_steps)

    policy.train()
    updates = 0
    for epoch in range(cfg.epochs):
        for i, batch in enumerate(loader):
            batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                policy_logps = sequence_logps(policy, batch)
            with torch.no_grad():
                ref_logps = sequence_logps(ref, batch)
            loss, acc = dpo_loss(policy_logps, ref_logps, cfg.dpo.beta)
            (loss / cfg.accumulate).backward()

            if (i + 1) % cfg.accumulate == 0:
                torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad(set_to_none=True)
                updates += 1
                if updates % cfg.log_every == 0:
                    print(f"epoch {epoch} update {updates} loss {loss.item():.4f} acc {acc.item():.3f}", flush=True)

    policy.save_pretrained(cfg.output_dir)
    tokenizer.save_pretrained(cfg.output_dir)


if __name__ == "__main__":
    main()
