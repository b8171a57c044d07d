"""One valid value of each record, small, and the strategies that vary them."""

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import strategies as st

from schemas.boundary import all_names
from schemas.provenance import Provenance
from schemas.record import Record
from schemas.records import (
    CondemnedPart,
    DatasetRecord,
    FileDigest,
    IndexFile,
    PartRecord,
    PartTensor,
    QuarantinedSample,
    RunEnd,
    RunStart,
    SplitRule,
    VersionName,
    VersionRecord,
)
from schemas.run_checks import RunChecks
from schemas.schema import DTYPES, INPUT_IDS, LOSS_MASK, TARGET_ARGMAX, Schema
from schemas.target import Target, WeightsDigest

GOLDEN = Path(__file__).parent / "golden"
MADE_AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

TARGET = Target(
    model_id="models/tiny",
    revision="main",
    model_type="llama",
    architecture="LlamaForCausalLM",
    n_layers=4,
    hidden_size=8,
    vocab_size=1000,
    weights=WeightsDigest(method="sampled_safetensors", sha256="a" * 64),
    quantisation=None,
    tokenizer_sha256="b" * 64,
    chat_template_sha256="c" * 64,
)
SCHEMA = Schema.declare(TARGET, ["embed", "layer2", "final", "final_normed"], "bfloat16")
FINGERPRINT = "0d" * 32

PROVENANCE = Provenance(
    engine="hf",
    engine_version="5.16.0",
    dtype="bfloat16",
    mode="generate",
    max_tokens=2048,
    on_too_long="truncate",
    min_trained_tokens=1,
    sampling={"temperature": 0.7, "seed": 7, "stop": ["é", "\n"]},
    engine_arguments={"block_size": 32},
)
DATASET = DatasetRecord(dataset_id="1" * 32, name="demo", created_at=MADE_AT)
PART = PartRecord(
    part_id="2" * 32,
    run_id="run-1",
    schema_fingerprint=FINGERPRINT,
    created_at=MADE_AT,
    n_samples=2,
    n_tokens=70,
    tensors=(PartTensor(name="embed", path="data.zarr/embed/c/0/0", row_bytes=16, payload_bytes=1120),),
    files=(
        FileDigest(path="data.zarr/embed/c/0/0", size_bytes=2088),
        FileDigest(path="samples.parquet", size_bytes=900, sha256="3" * 64),
    ),
)
INDEX_FILE = IndexFile(sha256="4" * 64, n_rows=2, n_tokens=70, size_bytes=500)
VERSION = VersionRecord(
    number=2,
    parent=1,
    parent_digest="8" * 64,
    operation="append",
    commit_id="5" * 32,
    created_at=MADE_AT,
    dataset_id="1" * 32,
    schema_fingerprint=FINGERPRINT,
    run_id="run-1",
    n_samples=2,
    n_tokens=70,
    size_bytes=2988,
    index=(INDEX_FILE,),
    quarantine=(IndexFile(sha256="6" * 64, n_rows=1, n_tokens=0, size_bytes=400),),
    n_quarantined=1,
    splits=(SplitRule(name="default", seed=0, fractions=(("train", 0.9), ("test", 0.1))),),
    condemned=(CondemnedPart(part_id="7" * 32, condemned_at=MADE_AT),),
).sealed()
VERSION_NAME = VersionName(name="paper-v1", dataset_id="1" * 32, number=2, digest="9" * 64, named_at=MADE_AT)
RUN_START = RunStart(
    run_id="run-1",
    started_at=MADE_AT,
    schema_fingerprint=FINGERPRINT,
    provenance=PROVENANCE,
    code_version="0.1.0",
    host="node-1",
    packages={"torch": "2.13.0", "numpy": "2.3.0"},
    config={"output": {"root": "data"}, "rates": [0.5, 1e-7, 3], "note": None},
    resumes_version=None,
)
RUN_END = RunEnd(
    run_id="run-1",
    ended_at=MADE_AT,
    outcome="interrupted",
    reason="asked to stop",
    n_samples=2,
    n_tokens=70,
    n_quarantined=1,
    size_bytes=2988,
    last_version=2,
    seconds=12.5,
)
RUN_CHECKS = RunChecks(
    run_id="run-1",
    made_at=MADE_AT,
    binding="by final (own next tokens stand out by 3.5 deviations on the audit set, others' by 0.5)",
    n_bound=5,
    n_again=1,
    n_unbound=2,
    positions=40,
    tied=3,
    agreeing=36,
    engine={"embed": "the server's slot", "unproven": "layer3"},
    proven_by="8 samples with every boundary, held against no witness",
)
QUARANTINED = QuarantinedSample(
    source="prompts.jsonl:17",
    reason="too_long",
    detail="expected at most 2048 tokens, got 2049",
    run_id="run-1",
    conversation_id="conversation-17",
    prompt_id="8" * 64,
)

RECORDS: dict[str, Record] = {
    "schema": SCHEMA,
    "dataset": DATASET,
    "part": PART,
    "version": VERSION,
    "version_name": VERSION_NAME,
    "run_start": RUN_START,
    "run_end": RUN_END,
    "run_checks": RUN_CHECKS,
    "quarantined_sample": QUARANTINED,
}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
targets = st.builds(
    Target,
    model_id=texts,
    revision=st.none() | texts,
    model_type=texts,
    architecture=texts,
    n_layers=st.integers(1, 80),
    hidden_size=st.integers(1, 8192),
    vocab_size=st.integers(1, 200_000),
    weights=st.builds(
        WeightsDigest, method=st.sampled_from(["hub_file_hashes", "sampled_safetensors"]), sha256=digests
    ),
    quantisation=st.none() | texts,
    tokenizer_sha256=digests,
    chat_template_sha256=st.none() | digests,
)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Draw a schema of any target, its names given in any order."""
    target = draw(targets)
    names = draw(st.lists(st.sampled_from(all_names(target.n_layers)), min_size=1, max_size=6, unique=True))
    columns = draw(st.sampled_from([(INPUT_IDS, LOSS_MASK), (INPUT_IDS, LOSS_MASK, TARGET_ARGMAX)]))
    return Schema.declare(target, names, draw(st.sampled_from(DTYPES)), columns)
