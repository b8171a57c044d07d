"""From files to token ids and loss masks, nothing lost in silence.

`read` -> `render` -> `dedupe`, or `make_prompts` for all three; `make_asks` where the target answers first.
Light to import: neither transformers nor torch is loaded here; `render` is handed a
`datagen.template.chat.ChatTemplate` where conversations need one.
"""

from datagen.prompts.asking import Asking, make_asks
from datagen.prompts.conversation import Conversation, Message, TokenColumns
from datagen.prompts.dedupe import dedupe
from datagen.prompts.errors import PromptError
from datagen.prompts.locate import Source, locate
from datagen.prompts.prompt import Ask, Given, Prompt
from datagen.prompts.read import read
from datagen.prompts.render import make_prompts, render
from datagen.prompts.settings import PromptSettings
from datagen.prompts.stats import PromptStats

__all__ = [
    "Ask",
    "Asking",
    "Conversation",
    "Given",
    "Message",
    "Prompt",
    "PromptError",
    "PromptSettings",
    "PromptStats",
    "Source",
    "TokenColumns",
    "dedupe",
    "locate",
    "make_asks",
    "make_prompts",
    "read",
    "render",
]
