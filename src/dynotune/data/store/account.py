"""What became of a data set's rows, as a store's manifest keeps it, so that a hit says what building said."""

from collections import Counter
from typing import Any

from dynotune.data.account.ledger import Ledger
from dynotune.data.ingest import Account
from dynotune.data.store.layout import DamagedError, Manifest


def account_told(account: Account) -> dict[str, Any]:
    """As a manifest keeps it."""
    return {
        "ledger": account.ledger.to_json(),
        "format": account.format,
        "encoder_notices": dict(account.encoder_notices),
        "probed": account.probed,
    }


def account_of(manifest: Manifest) -> Account:
    """Raises `DamagedError` where it does not add up."""
    told = manifest.account
    try:
        ledger = Ledger.from_json(told["ledger"])
        ledger.check()
        noticed = Counter({str(name): int(count) for name, count in told["encoder_notices"].items()})
        return Account(ledger, str(told["format"]), noticed, bool(told["probed"]))
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise DamagedError(f"its account cannot be read ({type(error).__name__})") from error
