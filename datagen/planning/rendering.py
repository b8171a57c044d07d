"""The chat template of a run: driver and workers load the same."""

from datagen.engines.settings import EngineSettings
from datagen.prompts.settings import PromptSettings
from datagen.template.chat import ChatTemplate
from datagen.template.tokenizer import load_tokenizer


def template_of(engine: EngineSettings, prompts: PromptSettings) -> ChatTemplate | None:
    """Return the template beside the engine's model, `None` where there is none.

    Prompts that are tokens already need none; messages are refused where they come up. Raises
    `TemplateError` when the tokenizer cannot be loaded.
    """
    if engine.model is None:
        return None
    tokenizer = load_tokenizer(
        engine.model, revision=engine.revision, trust_remote_code=engine.trust_remote_code
    )
    return ChatTemplate(tokenizer, prompts.template_options) if tokenizer.chat_template else None
