"""A dataset that changes, or is damaged, under a running server: named where it is seen, never zeros."""

from pathlib import Path

import httpx
import pytest

from tests.builders import tiny_schema, tiny_target
from tests.service.serving import make_dataset, serving

VERSION = "/v1/datasets/demo/versions/1"


def shards(root: Path) -> list[Path]:
    """Return the files that hold tensors' rows, the longest first."""
    found = [path for path in root.glob("demo/parts/*/data.zarr/*/c/**/*") if path.is_file()]
    return sorted(found, key=lambda path: -path.stat().st_size)


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_a_byte_flipped_in_the_first_piece_is_named(tmp_path: Path) -> None:
    samples = make_dataset(tmp_path, lengths=(100,))
    with serving(tmp_path) as url:
        address = f"{url}{VERSION}/samples/{samples[0].sample_id}/tensors"
        assert httpx.get(address).status_code == 200
        path = next(path for path in shards(tmp_path) if "/final/" in str(path))
        flip(path, 40)
        response = httpx.get(address)
        assert response.status_code == 500
        assert response.headers["content-type"] == "application/problem+json"
        assert path.relative_to(tmp_path).parts[2] in response.text
        assert str(tmp_path) not in response.text
        others = httpx.get(f"{address}?names=embed,layer2,input_ids")
        assert others.status_code == 200
        flip(path, 40)
        assert httpx.get(address).status_code == 200


def test_a_byte_flipped_in_a_later_piece_breaks_off(tmp_path: Path) -> None:
    """Never a body that looks whole: fewer bytes come than were announced, and the connection ends."""
    schema = tiny_schema(("final",), "float32", tiny_target(hidden_size=256))
    samples = make_dataset(tmp_path, lengths=(8192,), schema=schema)
    with serving(tmp_path) as url:
        address = f"{url}{VERSION}/samples/{samples[0].sample_id}/tensors"
        whole = httpx.get(address)
        flip(shards(tmp_path)[0], 6 << 20)
        got = bytearray()

        def read() -> None:
            with httpx.stream("GET", address) as response:
                assert response.status_code == 200
                assert response.headers["content-length"] == str(len(whole.content))
                for piece in response.iter_raw():
                    got.extend(piece)

        with pytest.raises(httpx.RemoteProtocolError):
            read()
        assert len(got) < len(whole.content)
        assert whole.content.startswith(got)
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_part_deleted_under_a_running_server(tmp_path: Path) -> None:
    """What was open may still be served as it was; what is gone is a failure that names it, never zeros."""
    samples = make_dataset(tmp_path, lengths=(100, 30))
    with serving(tmp_path) as url:
        addresses = [f"{url}{VERSION}/samples/{sample.sample_id}/tensors" for sample in samples]
        before = httpx.get(addresses[0]).content
        parts = [path for path in (tmp_path / "demo" / "parts").iterdir() if path.is_dir()]
        for part in parts:
            part.rename(tmp_path / part.name)
        again = httpx.get(addresses[0])
        assert again.content == before or again.status_code == 500
        with serving(tmp_path) as fresh:
            for address in addresses:
                response = httpx.get(address.replace(url, fresh))
                assert response.status_code == 500
                assert parts[0].name in response.text
                assert str(tmp_path) not in response.text


def test_a_commit_during_paging(tmp_path: Path) -> None:
    """Who pages through `latest` sees the version where the paging began: each sample once, none skipped."""
    first = make_dataset(tmp_path, lengths=range(1, 12))
    with serving(tmp_path) as url, httpx.Client(base_url=url, follow_redirects=True) as client:
        seen: list[str] = []
        following: str | None = "/v1/datasets/demo/versions/latest/samples?limit=3"
        seed = 100
        while following is not None:
            page = client.get(following).raise_for_status().json()
            seen += [sample["sample_id"] for sample in page["samples"]]
            following = page["next"]
            make_dataset(tmp_path, lengths=(2, 3), seed=seed)
            seed += 10
        assert seen == sorted(sample.sample_id for sample in first)
        assert client.get("/v1/datasets/demo/versions/latest").headers["strata-version"] == "5"
