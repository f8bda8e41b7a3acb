"""A folder that holds only a SentencePiece model: tokenised as SentencePiece itself does, or refused.

transformers converts such a model by guessing its whitespace and normalisation rules. A wrong guess trains other tokens
than the model was made with and nothing looks broken, so the result is compared with SentencePiece on probe texts.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dynotune.errors import ModelError
from dynotune.model.weight_files import stands_here

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBES = (
    "Hello world",
    "Two  spaces,   three; a tab\tand a\nline break.",
    "blank\n\nlines\n",
    "No. 1234567890 = 3.14159e-10 [x] {y} #!",
    "naïve café Ünïcödé ﬁ Å ①",
    "中文和日本語 текст العربية हिन्दी",
    "emoji 🙂 👩‍👩‍👧 ok",
    "def f(x):\n    return x + 1\n",
)


def sentencepiece_only(folder: Path) -> Path | None:
    """The folder's SentencePiece file, if that is all it knows of a tokenizer."""
    if not (stands_here(folder) and folder.is_dir()) or (folder / "tokenizer.json").exists():
        return None
    for name in ("tokenizer.model", "spm.model", "spiece.model"):
        if (folder / name).is_file() and not _is_tiktoken(folder / name):
            return folder / name
    return None


def faithful_tokenizer(tokenizer: "PreTrainedTokenizerBase", model_file: Path) -> "PreTrainedTokenizerBase":
    """`tokenizer` if it splits text as the SentencePiece model does, else a conversion that does, else `ModelError`.

    The conversion is saved with the model as `tokenizer.json`, so inference sees the tokens that were trained.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise ModelError(
            f"{model_file} is a SentencePiece model without a tokenizer.json. To check that it is converted rightly,"
            " install sentencepiece: pip install dynotune[sentencepiece]"
        ) from error
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    if _first_difference(tokenizer, processor) is None:
        return tokenizer
    converted = _convert(model_file, processor, tokenizer)
    difference = _first_difference(converted, processor)
    if difference is not None:
        probe, theirs, ours = difference
        raise ModelError(
            f"{model_file}: a SentencePiece model that transformers cannot convert faithfully. {probe!r} is"
            f" {theirs[:8]} in SentencePiece and {ours[:8]} after conversion. Convert it with the tokenizer class it"
            " was made for and give the folder with the resulting tokenizer.json as `tokenizer_name_or_path`."
        )
    return converted


def _is_tiktoken(path: Path) -> bool:
    """tiktoken files may carry the same name: lines of base64 and a rank, where SentencePiece is binary."""
    with path.open("rb") as file:
        first = file.readline(512).split()
    return len(first) == 2 and first[1].isdigit()


def _first_difference(tokenizer: "PreTrainedTokenizerBase", processor: Any) -> tuple[str, list[int], list[int]] | None:
    for probe in _PROBES:
        theirs = list(processor.encode(probe))
        ours = list(tokenizer.encode(probe, add_special_tokens=False))
        if theirs != ours:
            return probe, theirs, ours
    return None


def _merges(scores: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """Every way to join two pieces into a third, best score first: SentencePiece keeps scores, not merges."""
    rank = {piece: index for index, (piece, _) in enumerate(scores)}
    ordered = []
    for piece, score in scores:
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in rank and right in rank:
                ordered.append((-score, rank[piece], rank[left], rank[right], left, right))
    return [(left, right) for *_, left, right in sorted(ordered)]


def _convert(model_file: Path, processor: Any, loaded: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
    """A fast tokenizer by the model's own normaliser specification."""
    import sentencepiece.sentencepiece_model_pb2 as schema
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    proto = cast(Any, schema).ModelProto()
    proto.ParseFromString(model_file.read_bytes())
    scores = [(piece.piece, piece.score) for piece in proto.pieces]
    byte_fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM:
        model: Any = models.Unigram(scores, unk_id=proto.trainer_spec.unk_id, byte_fallback=byte_fallback)
    elif proto.trainer_spec.model_type == proto.trainer_spec.BPE:
        merges = _merges(scores)
        vocabulary = {piece: index for index, (piece, _) in enumerate(scores)}
        unknown = proto.trainer_spec.unk_piece
        model = models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=byte_fallback)
    else:
        raise ModelError(f"{model_file}: a SentencePiece model of words or characters; BPE and unigram can be used.")

    rules = proto.normalizer_spec
    steps: list[Any] = [normalizers.Precompiled(rules.precompiled_charsmap)] if rules.precompiled_charsmap else []
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    fast = Tokenizer(model)
    if steps:
        fast.normalizer = normalizers.Sequence(steps)
    scheme = "first" if rules.add_dummy_prefix else "never"
    # SentencePiece may merge across words only where it was trained to
    split = proto.trainer_spec.split_by_whitespace
    fast.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=split)
    unescape = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    fast.decoder = decoders.Sequence([*unescape, decoders.Strip(" ", 1, 0)] if rules.add_dummy_prefix else unescape)
    control, user_defined = 3, 4  # ModelProto.SentencePiece.Type
    fast.add_tokens(
        [
            AddedToken(piece.piece, normalized=False, special=piece.type == control)
            for piece in proto.pieces
            if piece.type in (control, user_defined)
        ]
    )
    # ids below zero mean that the model was made without that token
    names = {"bos_token": processor.bos_id(), "eos_token": processor.eos_id(), "unk_token": processor.unk_id()}
    special = {name: processor.id_to_piece(index) for name, index in names.items() if index >= 0}
    special |= {k: str(v) for k, v in loaded.init_kwargs.items() if k in ("pad_token", "eos_token") and v is not None}
    settings = {k: v for k, v in loaded.init_kwargs.items() if k in ("add_bos_token", "add_eos_token")}
    converted: PreTrainedTokenizerBase = cast(Any, PreTrainedTokenizerFast)(
        tokenizer_object=fast, **special, **settings
    )
    converted.chat_template = loaded.chat_template
    converted.name_or_path = str(model_file.parent)
    return converted
