"""Every example of docs/preference-data.md is what the page calls it, and every format has one."""

import json

import pytest

from dynotune.data.formats.preference import PREFERENCE_FORMATS
from dynotune.data.formats.recognise import Setting, normalise
from dynotune.data.rows import BadRow, Place, Record
from tests.docs.test_documents import Block, blocks, name

EXAMPLES = [block for block in blocks("json") if block.page == "docs/preference-data.md"]


@pytest.mark.parametrize("block", EXAMPLES, ids=name)
def test_the_example_is_recognised(block: Block) -> None:
    found = normalise(Record(Place(block.page, block.line), json.loads(block.text)), Setting(pairs=True))
    assert not isinstance(found, BadRow), found
    assert found[0] == block.title
    assert found[1].notices == []


def test_every_format_has_an_example() -> None:
    assert {block.title for block in EXAMPLES} == set(PREFERENCE_FORMATS)
