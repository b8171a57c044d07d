"""Other projects' own writers of hidden states, run on a CPU, and what `strata ingest` makes of their files.

Each runs in a process of its own, as `inside_writers` says, over the conversations below. The target is a
Llama of random weights with a tokenizer of bytes, and where `make assets` has been run SmolLM2, too.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from datagen.adapters.tensor_arrays import array_of
from datagen.commands.ingest import command
from datagen.errors import IngestError
from datagen.store.dataset import Dataset
from datagen.store.opening import open_door
from deploy.demo.model import MODEL
from schemas.sample import sample_id

INSIDE = Path(__file__).with_name("inside_writers")
N_LAYERS = 8
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONVERSATIONS = (
    ("What is the capital of France?", "Paris."),
    ("Name two prime numbers below ten.", "Three and seven are both prime."),
    ("Say hello.", "Hello!", "Now say it in Italian.", "Ciao!"),
    ("How many legs has a spider?", "A spider has eight legs: four on each side of its body."),
    ("What is 6 x 7?", "42"),
    ("Give me a word that rhymes with 'blue'.", "True, or shoe, or glue.", "One more.", "New."),
)
SECONDS = 300
# Nothing of the caller's environment goes in but what a process needs to live.
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")

targets = pytest.mark.parametrize(
    "target",
    [
        "tiny",
        pytest.param("smollm2", marks=pytest.mark.skipif(not MODEL.is_dir(), reason="run make assets")),
    ],
    indirect=True,
)


class WriterError(RuntimeError):
    """A writer ended with an error: the end of what it wrote says why."""


class Written(NamedTuple):
    """A sample as its file has it, T tokens; `states` are a `[T, H]` a label, in the order of labels."""

    ids: list[int]
    mask: list[int]
    states: tuple[Tensor, ...]


def target_folder(kind: str, folder: Path) -> Path:
    """Return the folder of a target, `tiny` being made in `folder`."""
    if kind != "tiny":
        return MODEL.resolve()
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=0.1,
        eos_token_id=2,
        bos_token_id=1,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, with the three tokens of a chat before them."""
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({text: number for number, text in enumerate((*specials, *letters))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=specials[0],
        bos_token=specials[1],
        eos_token=specials[2],
        pad_token=specials[2],
        chat_template=TEMPLATE,
        model_max_length=1024,
    )


def conversations(speaker: str, text: str, *speakers: str) -> list[dict[str, Any]]:
    """Return the conversations as rows of JSON, with these names of a turn's fields and of its speakers."""
    return [
        {
            "id": f"c{number}",
            "conversations": [
                {speaker: speakers[place % 2], text: said} for place, said in enumerate(conversation)
            ],
        }
        for number, conversation in enumerate(CONVERSATIONS)
    ]


def run(
    script: str,
    *words: object,
    packages: Sequence[Path],
    folder: Path,
    python: Path = Path(sys.executable),
    more: Mapping[str, str] | None = None,
) -> None:
    """Run one of `inside_writers` in `folder`, where its caches stay; raises WriterError."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **(more or {}),
    }
    command = [str(python), str(INSIDE / script), *map(str, words)]
    log = folder / "log"
    with log.open("w", encoding="utf-8") as out:
        try:
            subprocess.run(
                command, cwd=folder, env=environment, stdout=out, stderr=out, timeout=SECONDS, check=True
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise WriterError(f"{error}\n{log.read_text(encoding='utf-8')[-6000:]}") from error


def ingest(
    file_format: str, files: Path, root: Path, target: Path, labels: Sequence[str], *more: str
) -> tuple[int, dict[str, Any]]:
    """Run `strata ingest` into `root/theirs`; return its exit code and what it says."""
    words = ["--format", file_format, "--dataset", f"{root}/theirs", "--target", str(target)]
    with redirect_stdout(io.StringIO()) as out:
        code = command([*words, "--labels", ",".join(labels), "--device", "cpu", "--json", *more, str(files)])
    return code, json.loads(out.getvalue())


def refusal(
    file_format: str, files: Path, root: Path, target: Path, labels: Sequence[str], *more: str
) -> str:
    """Return why these labels are refused; nothing is written."""
    with pytest.raises(IngestError) as error:
        ingest(file_format, files, root, target, labels, *more)
    assert not (root / "theirs").exists()
    return str(error.value)


def assert_proven(said: Mapping[str, Any], labels: Sequence[str]) -> None:
    """Check that every slot was held against the target, and is what its label says."""
    assert list(said["labels"].values()) == list(labels)
    assert [slot["is"] for slot in said["proof"]["slots"]] == [[label] for label in labels]
    assert said["refused"] == []


def assert_in(root: Path, written: Iterable[Written], labels: Sequence[str]) -> None:
    """Compare `root/theirs` with what was written: ids, masks, and every bit of every state."""
    snapshot = Dataset.open(open_door(str(root)), "theirs").snapshot()
    samples = {sample_id(one.ids): one for one in written}
    assert samples
    assert set(snapshot.sample_ids) == set(samples)
    for name, one in samples.items():
        sample = snapshot.read(name)
        assert sample.tokens["input_ids"].tolist() == one.ids
        assert sample.tokens["loss_mask"].tolist() == one.mask
        assert tuple(sample.tensors) == tuple(labels)
        for label, rows in zip(labels, one.states, strict=True):
            expected = array_of(rows)
            assert sample.tensors[label].dtype == expected.dtype
            assert sample.tensors[label].tobytes() == expected.tobytes(), label
