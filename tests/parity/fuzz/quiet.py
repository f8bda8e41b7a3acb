"""Both trainers, without what they print of each of a thousand runs."""

import logging
import warnings


def quiet() -> None:
    """Both warn of each case, and show progress."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
