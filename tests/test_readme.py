"""What README.md says to type is typed here, and what it says one then sees is looked for.

Blocks marked `console` (their `$ ` lines) and `python` are run, verbatim and in their order, in a folder that
looks like a checkout after `make assets`: `.venv/bin` is this interpreter's, `deploy/` and the assets are
links, `data/` is its own. The block marked `bash` is run against the service. Blocks marked `text` are only
shown.

Two things are cheaper here than there. The environment limits every run to a few prompts and one worker
(`STRATA_PROMPTS__LIMIT`, as the README says of every setting); model, prompts and Ray are the real ones. And
`make` is asked with `-n` what it would do, because its `test` is this very test: what `make demo` does beyond
the assets must be commands that were run here.
"""

import doctest
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from datagen.config import setting_names

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ASSETS = (Path("data/models/smollm2-135m-instruct"), Path("data/prompts/sharegpt.jsonl"))
CHEAPER = {"STRATA_PROMPTS__LIMIT": "12", "STRATA_WORKERS__COUNT": "1", "OMP_NUM_THREADS": "2"}
RUN = ".venv/bin/strata run --config deploy/runs/demo.toml"
SERVE = ".venv/bin/strata serve --root data"
SHOW = ".venv/bin/strata show data/demo"
NORM_TOLERANCE = 0.02
"""Relative, of the first token's norms: that token is the same in every sample, so few samples do."""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    exit_code: int
    out: str
    err: str


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    joined = "".join(blocks("console")).replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def environment() -> dict[str, str]:
    outside = ("MAKE", "MFLAGS", "RAY_", "STRATA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    return {**kept, **CHEAPER}


def ran(command: str | list[str], folder: Path) -> Ran:
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout after `make assets`, without a dataset yet."""
    missing = [str(asset) for asset in ASSETS if not (ROOT / asset).exists()]
    if missing:
        pytest.fail(f"not there: {', '.join(missing)}; run `make assets`")
    folder = tmp_path_factory.mktemp("checkout")
    links = {Path(".venv/bin"): Path(sys.executable).parent, Path("deploy"): ROOT / "deploy"}
    links |= {asset: ROOT / asset for asset in ASSETS}
    for link, target in links.items():
        (folder / link).parent.mkdir(parents=True, exist_ok=True)
        (folder / link).symlink_to(target)
    return folder


@pytest.fixture(scope="module")
def service(checkout: Path, results: Mapping[str, Ran]) -> Iterator[str]:
    """Serve what was made, as the README says to, and give the port in the place of 8350."""
    assert results[RUN].exit_code == 0
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    command = [*SERVE.split(), "--port", port]
    with subprocess.Popen(command, cwd=checkout, env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            while ran(["curl", "-sf", f"http://127.0.0.1:{port}/healthz"], checkout).exit_code:
                assert process.poll() is None, "the service did not start"
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def results(checkout: Path) -> Mapping[str, Ran]:
    """Every command but `make`, run in the order of the README."""
    return {command: ran(command, checkout) for command in commands() if not command.startswith("make ")}


def test_its_make_targets_do_what_is_run_here() -> None:
    targets = [command.split()[1] for command in commands() if command.startswith("make ")]
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert ran(["make", "-n", target], ROOT).exit_code == 0, target
    demo = ran(["make", "-n", "demo"], ROOT).out.splitlines()
    for command in (RUN, SHOW):
        assert command in demo
        assert command in commands()


@pytest.mark.slow
def test_its_commands_end_well(results: Mapping[str, Ran]) -> None:
    for command, result in results.items():
        assert result.exit_code == 0, f"{command}\n{result.out}{result.err}"
    assert "data/demo@1: complete" in results[RUN].out
    verified = next(result for command, result in results.items() if "strata verify" in command)
    assert "data/demo holds (1 versions" in verified.out


@pytest.mark.slow
def test_its_table_is_what_show_prints(results: Mapping[str, Ran]) -> None:
    """Same columns and tensors; of the figures those that do not depend on which prompts were read."""
    shown = [block for block in blocks("text") if "tensor   boundary" in block]
    assert len(shown) == 1
    expected, got = table(shown[0]), table(results[SHOW].out)
    assert expected.keys() == got.keys()
    assert expected["tensor"] == got["tensor"]
    for name, row in expected.items():
        if name == "tensor":
            continue
        for column in ("boundary", "norm", "dtype", "width"):
            assert row[column] == got[name][column]
        assert figure(got[name]["first"]) == pytest.approx(figure(row["first"]), rel=NORM_TOLERANCE)


def table(text: str) -> dict[str, dict[str, str]]:
    """Return the norm table's rows by tensor, the heading as `tensor`."""
    lines = text[text.index("tensor   boundary") :].splitlines()
    heading = lines[0].split()
    rows: dict[str, dict[str, str]] = {"tensor": dict(zip(heading, heading, strict=True))}
    for line in lines[1:]:
        words = line.split()
        if len(words) != len(heading):
            break
        rows[words[0]] = dict(zip(heading, words, strict=True))
    return rows


def figure(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.slow
def test_run_again_it_finds_nothing_to_do(checkout: Path, results: Mapping[str, Ran]) -> None:
    assert results[RUN].exit_code == 0
    again = ran(RUN, checkout)
    assert again.exit_code == 0, again.err
    assert "data/demo@1: nothing to do" in again.out


@pytest.mark.slow
def test_its_python_prints_what_its_comments_say(checkout: Path, service: str) -> None:
    """A comment behind a `print` is what that prints, `...` standing for anything."""
    assert SERVE in README
    for block in blocks("python"):
        printing = [line for line in block.splitlines() if line.startswith("print(")]
        assert printing
        result = ran([sys.executable, "-W", "error", "-c", block.replace(":8350", f":{service}")], checkout)
        assert result.exit_code == 0, result.err
        printed = result.out.splitlines()
        assert len(printed) == len(printing)
        for line, got in zip(printing, printed, strict=True):
            want = line.partition("  # ")[2]
            assert want, f"no comment says what is printed: {line}"
            assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), f"{line}\n{got}"


@pytest.mark.slow
def test_its_curl_examples_work(checkout: Path, service: str) -> None:
    """As one script, in their order: what they answer is looked for in the order in which they stand."""
    assert SERVE in ran(["make", "-n", "serve"], ROOT).out
    (script,) = blocks("bash")
    # A link to the folder alone would be another Python, without its packages.
    script = script.replace(":8350", f":{service}").replace(".venv/bin/python", sys.executable)
    result = ran(["bash", "-euo", "pipefail", "-c", script], checkout)
    assert result.exit_code == 0, result.err
    expected = (
        '"name":"demo"',
        '"number":1',
        '"fingerprint":"',
        '"length_histogram":[',
        '"next":"/v1/datasets/demo/versions/1/samples?limit=2&min_tokens=128&cursor=',
        "torch.Size([16, 576])",
        '"status":409',
        "expected layer3 for mine, got a dataset of embed, layer2, layer15, layer27, final",
    )
    rest = result.out
    for each in expected:
        assert each in rest, f"{each}\n{result.out}"
        rest = rest.partition(each)[2]


@pytest.mark.parametrize("page", ["README.md", "deploy/README.md"])
def test_what_a_page_names_is_there(page: str) -> None:
    """Links, folders, files under `deploy/`, and every setting that is written as a flag."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    here = (ROOT / page).parent
    assert [link for link in named if not (here / link).exists()] == []
    paths = re.findall(r"\b(?:deploy|tests|datagen|schemas|service)/[\w./-]*\w", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    flags = re.findall(r"--([a-z]\w*\.\w[\w.]*)", text)
    assert [flag for flag in flags if flag not in setting_names()] == []
