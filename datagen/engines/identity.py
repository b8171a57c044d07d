"""The target's identity from a model's files: config, tokenizer, safetensors headers; no weights loaded."""

from datagen.engines.architecture import architecture_of, read_config
from datagen.engines.errors import OpeningError
from datagen.engines.model_files import locate, weights_of
from datagen.engines.settings import EngineSettings
from datagen.engines.tokenizer_files import chat_template_digest, tokenizer_digest
from schemas.problem import Problem
from schemas.target import Target


def read_target(settings: EngineSettings) -> Target:
    """Return the identity of the model that `settings` name.

    Raises `OpeningError` with every problem of its files.
    """
    files = locate(settings, with_weights=False)
    shape = architecture_of(read_config(files.folder, trust_remote_code=settings.trust_remote_code))
    weights = weights_of(files)
    tokenizer = tokenizer_digest(files.folder)
    template = chat_template_digest(files.folder)
    if isinstance(weights, Problem) or isinstance(tokenizer, Problem) or isinstance(template, Problem):
        problems = [found for found in (weights, tokenizer, template) if isinstance(found, Problem)]
        raise OpeningError(f"the files of {files.model_id} are not whole", problems)
    return Target(
        model_id=files.model_id,
        revision=files.revision,
        model_type=shape.model_type,
        architecture=shape.name,
        n_layers=shape.n_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        weights=weights,
        quantisation=shape.quantisation,
        tokenizer_sha256=tokenizer,
        chat_template_sha256=template,
    )


def longest_sample(settings: EngineSettings) -> int | None:
    """Return the most tokens that the model has positions for, `None` where there is no limit.

    Raises `OpeningError` as `read_target` does for files that are not there.
    """
    folder = locate(settings, with_weights=False).folder
    return architecture_of(read_config(folder, trust_remote_code=settings.trust_remote_code)).longest_sample
