"""`ROOT/DATASET[@VERSION]`: what is written so reads back, and all that is not is said at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import DatasetNameError
from schemas.reference import DatasetReference, parse_reference, version_name_problems

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
roots = st.sampled_from(
    [".", "..", "/", "data", "/mnt/d", "a/../b", "me@home/x", "s3://b", "gs://b/c", "az://b", "C:/d"]
)
version_names = st.from_regex(r"[a-z][a-z0-9._-]{0,63}", fullmatch=True).filter(lambda text: text != "latest")
versions = st.none() | st.integers(1, 99_999_999) | version_names


@settings(deadline=None, max_examples=200)
@given(st.builds(DatasetReference, roots, names, versions))
def test_a_reference_reads_back_as_it_was_written(reference: DatasetReference) -> None:
    assert parse_reference(str(reference)) == reference
    assert parse_reference(f"{reference}/") == reference


@settings(deadline=None, max_examples=200)
@given(st.text("ab@/:.1 \n", max_size=10))
def test_any_text_is_a_reference_that_reads_back_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except DatasetNameError:
        return
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    ("text", "expected", "written"),
    [
        pytest.param("demo", (".", "demo", None), "./demo", id="name"),
        pytest.param("data/demo", ("data", "demo", None), "data/demo", id="folder"),
        pytest.param("data/demo@12", ("data", "demo", 12), "data/demo@12", id="version"),
        pytest.param("data/demo@12/", ("data", "demo", 12), "data/demo@12", id="version-slash"),
        pytest.param("data/demo//", ("data", "demo", None), "data/demo", id="trailing-slashes"),
        pytest.param("data//demo", ("data", "demo", None), "data/demo", id="double-slash"),
        pytest.param("/demo", ("/", "demo", None), "/demo", id="at-the-top"),
        pytest.param("/mnt/data/demo", ("/mnt/data", "demo", None), "/mnt/data/demo", id="absolute"),
        pytest.param("../demo", ("..", "demo", None), "../demo", id="root-above"),
        pytest.param("me@home/demo", ("me@home", "demo", None), "me@home/demo", id="at-in-folder"),
        pytest.param("me@2/demo@3", ("me@2", "demo", 3), "me@2/demo@3", id="at-twice"),
        pytest.param("s3://bucket/demo", ("s3://bucket", "demo", None), "s3://bucket/demo", id="bucket"),
        pytest.param("gs://b/x/demo@1", ("gs://b/x", "demo", 1), "gs://b/x/demo@1", id="bucket-prefix"),
        pytest.param("data/demo@paper-v1", ("data", "demo", "paper-v1"), "data/demo@paper-v1", id="named"),
        pytest.param("data/demo@latest", ("data", "demo", None), "data/demo", id="latest"),
        pytest.param("demo.audit", (".", "demo.audit", None), "./demo.audit", id="companion"),
    ],
)
def test_what_is_well_written(text: str, expected: tuple[str, str, int | str | None], written: str) -> None:
    reference = parse_reference(text)
    assert reference == expected
    assert str(reference) == written


@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param("", ["dataset"], id="empty"),
        pytest.param("/", ["dataset"], id="slash"),
        pytest.param("..", ["dataset"], id="above"),
        pytest.param("data/..", ["dataset"], id="root-then-above"),
        pytest.param("data/.", ["dataset"], id="here"),
        pytest.param("data/.hidden", ["dataset"], id="hidden"),
        pytest.param("data/-x", ["dataset"], id="like-a-flag"),
        pytest.param("data/ demo", ["dataset"], id="blank"),
        pytest.param("data/demo\n", ["dataset"], id="newline"),
        pytest.param("data/démo", ["dataset"], id="accent"),
        pytest.param("data/" + "x" * 129, ["dataset"], id="too-long"),
        pytest.param("C:\\data\\demo", ["dataset"], id="backslashes"),
        pytest.param("a/b@0", ["version"], id="version-0"),
        pytest.param("a/b@X", ["version"], id="version-upper-case"),
        pytest.param("a/b@-x", ["version"], id="version-like-a-flag"),
        pytest.param("a/b@x y", ["version"], id="version-blank"),
        pytest.param("a/b@x\n", ["version"], id="version-newline"),
        pytest.param("a/b@" + "x" * 65, ["version"], id="version-too-long"),
        pytest.param("a/b@", ["version"], id="version-empty"),
        pytest.param("a/b@-1", ["version"], id="version-negative"),
        pytest.param("a/b@01", ["version"], id="version-leading-zero"),
        pytest.param("a/b@\uff13", ["version"], id="version-wide-digit"),
        pytest.param("a/b@123456789", ["version"], id="version-too-big"),
        pytest.param("a/b@1@2", ["dataset"], id="two-versions"),
        pytest.param("a/b/@3", ["dataset"], id="version-of-nothing"),
        pytest.param("s3://bucket", ["root"], id="bucket-only"),
        pytest.param("s3:///demo", ["root"], id="no-bucket"),
        pytest.param("s3://", ["dataset"], id="scheme-only"),
        pytest.param("a/.b@0", ["dataset", "version"], id="name-and-version"),
        pytest.param("s3:///.b@X", ["dataset", "version", "root"], id="everything"),
    ],
)
def test_what_is_not_well_written_is_refused_with_every_problem(text: str, where: list[str]) -> None:
    with pytest.raises(DatasetNameError) as caught:
        parse_reference(text)
    assert [problem.where for problem in caught.value.problems] == where
    assert all(
        problem.message.startswith("expected ") and ", got " in problem.message
        for problem in caught.value.problems
    )
    assert caught.value.headline == f"expected ROOT/DATASET[@VERSION], got {text!r}"


def test_a_version_0_is_never_written_as_the_latest() -> None:
    assert str(DatasetReference("data", "demo", 0)) == "data/demo@0"


@pytest.mark.parametrize("name", ["latest", "", "12", "1a", "A", "a/b", "a b", "..", "a\n", "é", "x" * 65])
def test_what_no_version_can_be_called(name: str) -> None:
    (problem,) = version_name_problems(name)
    assert problem.where == "name"
    assert ", got " in problem.message


@pytest.mark.parametrize("name", ["a", "paper-v1", "v1.2_final", "x" * 64])
def test_what_a_version_can_be_called(name: str) -> None:
    assert version_name_problems(name) == []
