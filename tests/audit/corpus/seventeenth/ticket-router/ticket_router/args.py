import argparse


def parse_args():
    p = argparse.ArgumentParser("ticket-router")
    p.add_argument("--model_name", default="distilbert-base-uncased")
    p.add_argument("--train_file", required=True)
    p.add_argument("--output_dir", default="runs/router")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--lr", type=float, default=3e-5)
    p.add_argument("--max_length", type=int, default=512)
    p.add_argument("--fp16", action="store_true")
    return p.parse_args()
