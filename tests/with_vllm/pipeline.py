"""speculators' own offline pipeline, whole: its conversations are rendered and run by a real vLLM server.

`python -m tests.with_vllm.pipeline FOLDER` leaves what a person has who used it: `FOLDER/prepared` with the
Arrow dataset of `prepare-data` (`input_ids`, `loss_mask`, `seq_len`; a row an assistant turn), and in
`FOLDER/prepared/hidden_states` the files of `generate-offline-data`, `hs_{row}.safetensors`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from deploy.demo.incident.environment import make_environment
from deploy.demo.model import MODEL
from deploy.demo.prompts import PROMPTS
from schemas.schema import DType
from tests.with_vllm.environment import variables
from tests.with_vllm.serving import served, serving

LAYER_IDS = (2, 15, 27, 30)
NAMES = ("layer2", "layer15", "layer27", "final")
"""What those ids are by name, in this order: speculators' default layers of a model of 30, and the last."""
CONVERSATIONS, LONGEST_TEXT = 12, 1500
SEQ_LENGTH = 320
PREPARED, STATES = "prepared", "hidden_states"


def conversations(n: int = CONVERSATIONS) -> list[str]:
    """Return the first `n` short real conversations, a line of JSON each, as they are on disk."""
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    short = [line for line in lines if len(line) <= LONGEST_TEXT and '"gpt"' in line]
    if len(short) < n:
        raise ValueError(f"{PROMPTS}: expected {n} conversations of {LONGEST_TEXT} letters, got {len(short)}")
    return short[:n]


def make(folder: Path, *, dtype: DType = "bfloat16", n: int = CONVERSATIONS) -> Path:
    """Run the pipeline on `n` conversations into `folder`, which is empty; return the prepared dataset.

    Raises ServingError where vLLM does not start, subprocess.CalledProcessError where speculators fails.
    """
    data, prepared = folder / "conversations.jsonl", folder / PREPARED
    data.write_text("".join(f"{line}\n" for line in conversations(n)), encoding="utf-8")
    settings = served(MODEL, LAYER_IDS, dtype, folder)
    with serving(settings, folder, SEQ_LENGTH + 1, more=("--enable-scale-out",)):
        url = settings.openai.base_url
        _speculators(
            folder,
            "prepare-data",
            *("--model", str(settings.model), "--data", str(data), "--output", str(prepared)),
            *("--render-endpoint", url, "--seq-length", str(SEQ_LENGTH), "--no-skip-token-freq"),
            *("--num-preprocessing-workers", "1"),
        )
        _speculators(
            folder,
            "generate-offline-data",
            *("--endpoint", f"{url}/v1", "--preprocessed-data", str(prepared)),
            *("--concurrency", "4", "--validate-outputs", "--fail-on-error"),
        )
    return prepared


def files_of(prepared: Path) -> list[Path]:
    """Return the files of states in the order of their rows."""
    files = (prepared / STATES).glob("hs_*.safetensors")
    return sorted(files, key=lambda file: int(file.stem.removeprefix("hs_")))


def _speculators(folder: Path, *words: str) -> None:
    log = folder / f"log-{words[0]}"
    environment = variables() | {"PYTHONPATH": str(make_environment()), "HF_HOME": str(folder / "hf")}
    with log.open("w", encoding="utf-8") as out:
        command = [sys.executable, "-m", "speculators", *words]
        done = subprocess.run(command, env=environment, stdout=out, stderr=out, check=False, cwd=folder)
    if done.returncode:
        sys.stderr.write(log.read_text(encoding="utf-8")[-4000:])
        done.check_returncode()


def main() -> None:
    """Make the folder that is named, and say what lies in it."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    prepared = make(folder.resolve())
    files = files_of(prepared)
    said = {"prepared": str(prepared), "files": len(files), "bytes": sum(map(os.path.getsize, files))}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
