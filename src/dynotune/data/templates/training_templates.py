"""Training variants of known chat templates, made by editing the tokenizer's own template.

Some families ship templates that cannot be used for assistant-only loss as they are: they carry no `{% generation %}`
blocks, and they render an answer differently once another turn follows (Qwen3 drops its thinking block), so that no
difference of renderings tells which text is the answer. TRL has a hand-made replacement for each; the edits below give
the same text and the same label tokens (tests compare them with TRL's). A template is recognised by the SHA-256 of its
whole text, so one that somebody has changed is never edited.
"""

import hashlib
import re
from dataclasses import dataclass

Edit = tuple[str, str]
"""Text of the original, which must occur exactly once, and what takes its place."""


@dataclass(frozen=True)
class _Family:
    name: str
    sha256: str
    edits: tuple[Edit, ...]


_OPEN = "\n        {%- generation %}\n"
_CLOSE_BEFORE_TOOL = (
    "        {{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
    "        {{- '<|im_end|>\\n' }}\n        {%- endgeneration %}\n    {%- elif message.role == \"tool\" %}",
)
_HEADER = "        {{- '<|im_start|>' + message.role + '\\n' }}" + _OPEN


def _always_think(condition: str) -> Edit:
    """Qwen3.5 and later: write the thinking block into every answer, not only into the last ones."""
    answer = "<think>\\n' + reasoning_content + '\\n</think>\\n\\n' + content"
    return (
        f"        {{%- if {condition} %}}\n"
        f"            {{{{- '<|im_start|>' + message.role + '\\n{answer} }}}}\n"
        "        {%- else %}\n"
        "            {{- '<|im_start|>' + message.role + '\\n' + content }}\n"
        "        {%- endif %}\n",
        f"{_HEADER}        {{{{- '{answer} }}}}\n",
    )


_QWEN_2_5: tuple[Edit, ...] = (
    (' or (message.role == "assistant" and not message.tool_calls) %}', " %}"),
    (
        "        {{- '<|im_start|>' + message.role }}\n        {%- if message.content %}",
        f"        {{{{- '<|im_start|>' + message.role }}}}{_OPEN}"
        "        {%- if message.content or not message.tool_calls %}",
    ),
    _CLOSE_BEFORE_TOOL,
)

_QWEN_3: tuple[Edit, ...] = (
    (
        "        {%- if loop.index0 > ns.last_query_index %}\n"
        "            {%- if loop.last or (not loop.last and reasoning_content) %}\n"
        "                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n')"
        " + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n"
        "            {%- else %}\n"
        "                {{- '<|im_start|>' + message.role + '\\n' + content }}\n"
        "            {%- endif %}\n"
        "        {%- else %}\n"
        "            {{- '<|im_start|>' + message.role + '\\n' + content }}\n"
        "        {%- endif %}\n",
        _HEADER
        + "        {{- '<think>\\n' + reasoning_content.strip('\\n')"
        + " + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n",
    ),
    _CLOSE_BEFORE_TOOL,
)

_QWEN_3_INSTRUCT: tuple[Edit, ...] = (
    ("        {{- '<|im_start|>' + message.role + '\\n' + content }}\n", _HEADER + "        {{- content }}\n"),
    _CLOSE_BEFORE_TOOL,
)


_GPT_OSS: tuple[Edit, ...] = (
    (
        '        {%- if "tool_calls" in message %}\n            {#- We need',
        '        {%- generation %}\n        {%- if "tool_calls" in message %}\n            {#- We need',
    ),
    (
        "            {%- set last_tool_call.name = none %}\n        {%- endif %}\n",
        "            {%- set last_tool_call.name = none %}\n        {%- endif %}\n        {%- endgeneration %}\n",
    ),
)

_THINK_SPLIT = (
    "{% set content = message['content'] %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
)

# Without the split, or the reasoning would be cut out of the text that is to be trained.
_DEEPSEEK_R1: tuple[Edit, ...] = (
    (
        "{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls']%}",
        "{%- set ns.is_tool = false -%}{%- generation %}{%- for tool in message['tool_calls']%}",
    ),
    (
        "{%- endif %}{%- endfor %}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}"
        "{%- if ns.is_tool %}",
        "{%- endif %}{%- endfor %}{%- endgeneration %}{%- endif %}"
        "{%- if message['role'] == 'assistant' and message['content'] is not none %}{%- if ns.is_tool %}{%- generation %}",
    ),
    (
        "{%- set ns.is_tool = false -%}{%- else %}" + _THINK_SPLIT,
        "{%- set ns.is_tool = false -%}{%- endgeneration %}{%- else %}{%- generation %}"
        "{% set content = message['content'] %}",
    ),
    (
        "{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}",
        "{%- endgeneration %}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}",
    ),
)


def _phi(original_end: str) -> tuple[Edit, ...]:
    return (
        (
            "{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}",
            "{{'<|assistant|>\n'}}{% generation %}{{ message['content'] + '<|end|>\n'}}{% endgeneration %}{% endif %}",
        ),
        (
            original_end,
            "{% elif messages[-1]['role'] == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}"
            "{% else %}{{ eos_token }}{% endif %}",
        ),
    )


_FAMILIES = (
    _Family("Qwen2.5", "cd8e9439f0570856fd70470bf8889ebd8b5d1107207f67a5efb46e342330527f", _QWEN_2_5),
    _Family("Qwen3", "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", _QWEN_3),
    _Family(
        "Qwen3-Instruct-2507", "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326", _QWEN_3_INSTRUCT
    ),
    *(
        _Family(name, sha256, (_always_think(condition), _CLOSE_BEFORE_TOOL))
        for name, sha256, condition in (
            (
                "Qwen3.5",
                "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715",
                "loop.index0 > ns.last_query_index",
            ),
            (
                "Qwen3.5 without thinking",
                "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80",
                "loop.index0 > ns.last_query_index",
            ),
            (
                "Qwen3.6",
                "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259",
                "(preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_query_index)",
            ),
            (
                "Qwen3.8",
                "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",
                "preserve_thinking is undefined or preserve_thinking is true or loop.index0 > ns.last_query_index",
            ),
        )
    ),
    _Family("GPT-OSS", "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146", _GPT_OSS),
    _Family("DeepSeek-R1-Distill", "56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f", _DEEPSEEK_R1),
    *(
        _Family(name, sha256, _phi("{% else %}{{ eos_token }}{% endif %}"))
        for name, sha256 in (
            ("Phi-3", "dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa"),
            ("Phi-3.5", "78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90"),
        )
    ),
)


def has_generation_blocks(template: str) -> bool:
    """Whether the template marks what the model generates (`{% generation %}`, with or without trimming dashes)."""
    return re.search(r"\{%-?\s*generation\s*-?%\}", template) is not None


def training_variant(template: str) -> tuple[str, str] | None:
    """The family's name and the edited template, or None where it needs none or is not known."""
    if has_generation_blocks(template):
        return None
    digest = hashlib.sha256(template.encode()).hexdigest()
    for family in _FAMILIES:
        if family.sha256 == digest:
            for original, replacement in family.edits:
                assert template.count(original) == 1, f"{family.name}: an edit does not fit its template"
                template = template.replace(original, replacement)
            return family.name, template
    return None
