import fire

from .train import run

if __name__ == "__main__":
    fire.Fire(run)
