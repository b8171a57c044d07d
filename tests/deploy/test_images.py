"""The images, the compose file and the manifests: linted by the real tools, and true of what they run."""

import json
import re
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from datagen.config import load_config
from service.app import create_app
from service.commands.serve import GRACE_SECONDS
from service.settings import ENV_PREFIX, Settings
from tests.deploy.test_constraints import pins
from tests.service.serving import make_dataset, serving, settings_of

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = Path(sysconfig.get_path("scripts"))
DOCKERFILES = sorted(DEPLOY.glob("*.Dockerfile"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = "1.34"
PORT = Settings.model_fields["port"].default


def lint(tool: str, *words: str | Path) -> None:
    ran = subprocess.run([PROGRAMS / tool, *words], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: the word, and the rest with its continued lines."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def only(found: list[tuple[str, str]], word: str) -> str:
    (rest,) = [rest for name, rest in found if name == word]
    return rest


def dockerfile(name: str) -> list[tuple[str, str]]:
    return instructions(DEPLOY / f"{name}.Dockerfile")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_dockerfiles_are_well_by_hadolint(path: Path) -> None:
    lint("hadolint", path)


def test_yaml_is_well_by_yamllint() -> None:
    lint("yamllint", "--strict", "--config-file", DEPLOY / "yamllint.yaml", COMPOSE, *MANIFESTS)


def test_the_compose_file_fits_the_compose_specification() -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize("name", ["service.yaml", "states.yaml"])
def test_manifests_fit_the_schemas_of_kubernetes(name: str) -> None:
    lint("kubernetes-validate", "--kubernetes-version", KUBERNETES, "--strict", DEPLOY / "kubernetes" / name)


def test_a_lint_can_fail(tmp_path: Path) -> None:
    """Each of the tools finds what is planted."""
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /x && sudo make\n")
    (tmp_path / "compose.yaml").write_text("services:\n  a: {imag:  x}\n")
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containes: []}\n"
    )
    for said, tool, *words in (
        ("DL3006", "hadolint", "Dockerfile"),
        ("too many spaces", "yamllint", "--strict", "compose.yaml"),
        ("imag", "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"),
        (
            "'containers' is a required",
            "kubernetes-validate",
            "--kubernetes-version",
            KUBERNETES,
            "--strict",
            "pod.yaml",
        ),
    ):
        ran = subprocess.run(
            [PROGRAMS / tool, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode != 0, tool
        assert said in ran.stdout + ran.stderr, tool


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_small_of_a_pinned_base_and_runs_as_nobody_special(path: Path) -> None:
    found = instructions(path)
    bases = [rest for word, rest in found if word == "FROM"]
    assert bases == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    assert re.search(r"^PYTHON=3\.11\.\d+-slim-\w+$", found[0][1])
    final = found[[word for word, _ in found].index("FROM", 2) :]
    assert only(final, "USER") == "10001:10001"
    assert json.loads(only(final, "HEALTHCHECK").partition("CMD ")[2])
    last = [word for word, _ in final]
    assert last.index("USER") > max(at for at, word in enumerate(last) if word in ("RUN", "COPY"))
    said = " ".join(rest for word, rest in found if word in ("ENV", "ARG"))
    assert not re.search(r"(SECRET|PASSWORD|TOKEN)\w*=", said)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_an_image_copies_is_there_and_let_through(path: Path) -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert all((ROOT / name).exists() for name in let_through)
    copied = [rest.split()[0] for word, rest in instructions(path) if word == "COPY" and "--from" not in rest]
    assert set(copied) <= {".", *let_through}
    assert "deploy/constraints-cpu.txt" in let_through
    assert not {name.split("/")[0] for name in let_through} & {"data", "tests", ".git", ".venv"}


def environment_of(found: list[tuple[str, str]]) -> dict[str, str]:
    text = " ".join(rest for word, rest in found if word == "ENV")
    return dict(re.findall(r"(\w+)=(\S+)", text))


def test_the_services_image_sets_what_the_service_reads() -> None:
    variables = environment_of(dockerfile("service"))
    given = {
        name.removeprefix(ENV_PREFIX).lower(): value for name, value in variables.items() if "STRATA" in name
    }
    settings = Settings.model_validate(given)
    assert (settings.host, settings.port) == ("0.0.0.0", PORT)
    assert settings.keys is not None
    assert only(dockerfile("service"), "EXPOSE") == str(PORT)
    extras = [rest for word, rest in dockerfile("service") if word == "RUN" and "[service]" in rest]
    assert len(extras) == 1


def asked_by(words: list[str], url: str) -> int:
    """Run a health check's words against a server that listens elsewhere."""
    here = [word.replace(f"http://127.0.0.1:{PORT}", url) for word in words]
    assert here != words
    program = [str(PROGRAMS / "python"), *here[1:]]
    return subprocess.run(program, capture_output=True, check=False).returncode


def health_checks() -> Iterator[tuple[str, list[str]]]:
    yield "image", json.loads(only(dockerfile("service"), "HEALTHCHECK").partition("CMD ")[2])
    (compose,) = documents(COMPOSE)
    yield "compose", compose["services"]["service"]["healthcheck"]["test"][1:]


@pytest.mark.parametrize(("where", "words"), list(health_checks()), ids=("image", "compose"))
def test_health_checks_tell_a_service_that_is_well_from_one_that_is_not(
    where: str, words: list[str], tmp_path: Path
) -> None:
    make_dataset(tmp_path, lengths=(3,))
    with serving(tmp_path) as url:
        assert asked_by(words, url) == 0
        assert asked_by(
            [word.replace("healthz", "nowhere").replace("readyz", "nowhere") for word in words], url
        )
    assert asked_by(words, url) != 0


def test_compose_runs_what_there_is() -> None:
    (compose,) = documents(COMPOSE)
    services = compose["services"]
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        build = service["build"]
        assert (COMPOSE.parent / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (COMPOSE.parent / source).resolve() == ROOT / "data"
    assert f"127.0.0.1:{PORT}:{PORT}" in services["service"]["ports"]
    assert services["ray-worker"]["depends_on"] == {"ray-head": {"condition": "service_healthy"}}


def test_compose_says_to_ray_what_ray_understands() -> None:
    (compose,) = documents(COMPOSE)
    understood = subprocess.run(
        [PROGRAMS / "ray", "start", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in ("ray-head", "ray-worker"):
        program, verb, *flags = compose["services"][name]["command"]
        assert (program, verb) == ("ray", "start")
        assert [flag for flag in flags if flag.split("=")[0] not in understood] == []


class Closed(BaseModel):
    """A part of a manifest: no field but those of KubeRay's API `ray.io/v1`, as far as they are used here."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AuthOptions(Closed):
    mode: str


class HeadGroupSpec(Closed):
    rayStartParams: dict[str, str]  # noqa: N815
    template: dict[str, Any]


class WorkerGroupSpec(HeadGroupSpec):
    groupName: str  # noqa: N815
    replicas: int
    minReplicas: int  # noqa: N815
    maxReplicas: int  # noqa: N815


class RayClusterSpec(Closed):
    rayVersion: str  # noqa: N815
    authOptions: AuthOptions  # noqa: N815
    headGroupSpec: HeadGroupSpec  # noqa: N815
    workerGroupSpecs: list[WorkerGroupSpec]  # noqa: N815


class RayJobSpec(Closed):
    entrypoint: str
    runtimeEnvYAML: str  # noqa: N815
    submissionMode: str  # noqa: N815
    shutdownAfterJobFinishes: bool  # noqa: N815
    ttlSecondsAfterFinished: int  # noqa: N815
    backoffLimit: int  # noqa: N815
    rayClusterSpec: RayClusterSpec  # noqa: N815


@pytest.fixture(scope="module")
def job() -> RayJobSpec:
    (found,) = documents(DEPLOY / "kubernetes" / "rayjob.yaml")
    assert (found["apiVersion"], found["kind"], set(found)) == (
        "ray.io/v1",
        "RayJob",
        {"apiVersion", "kind", "metadata", "spec"},
    )
    return RayJobSpec.model_validate(found["spec"])


def test_the_jobs_pods_fit_the_schemas_of_kubernetes(job: RayJobSpec, tmp_path: Path) -> None:
    cluster = job.rayClusterSpec
    for number, group in enumerate([cluster.headGroupSpec, *cluster.workerGroupSpecs]):
        path = tmp_path / f"{number}.yaml"
        template = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": "pod"},
            "template": group.template,
        }
        path.write_text(yaml.safe_dump(template))
        lint("kubernetes-validate", "--kubernetes-version", KUBERNETES, "--strict", path)


def test_the_job_runs_a_run_file_on_the_ray_of_the_image(
    job: RayJobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job.rayClusterSpec.rayVersion == pins()["ray"]
    assert job.rayClusterSpec.authOptions.mode == environment_of(dockerfile("datagen"))["RAY_AUTH_MODE"]
    *command, path = job.entrypoint.split()
    assert command == ["python", "-m", "datagen.run", "--config"]
    assert path.startswith("/srv/runs/")
    assert ("COPY", "deploy/runs /srv/runs") in dockerfile("datagen")
    variables = yaml.safe_load(job.runtimeEnvYAML)["env_vars"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    config = load_config([], DEPLOY / "runs" / Path(path).name, "strata run")
    (group,) = job.rayClusterSpec.workerGroupSpecs
    (container,) = group.template["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for place in (config.engine.model, *config.prompts.paths, config.output.root):
        assert any(str(place).startswith(mount) for mount in mounts), place
    assert container["resources"]["limits"]["nvidia.com/gpu"] == config.workers.gpus
    assert int(container["resources"]["requests"]["cpu"]) >= config.workers.cpus


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    (job,) = documents(DEPLOY / "kubernetes" / "rayjob.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    yield "head", cluster["headGroupSpec"]["template"]["spec"]
    yield "worker", cluster["workerGroupSpecs"][0]["template"]["spec"]
    deployment = documents(DEPLOY / "kubernetes" / "service.yaml")[0]
    yield "service", deployment["spec"]["template"]["spec"]


@pytest.mark.parametrize(("name", "pod"), list(pods()), ids=("head", "worker", "service"))
def test_pods_are_nobody_special_and_bounded(name: str, pod: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    claimed = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"].keys() >= {"cpu", "memory"}
        assert container["image"].endswith(f":{project['version']}")
        assert {mount["name"] for mount in container["volumeMounts"]} == claimed


def test_the_deployment_is_probed_at_routes_that_anybody_may_ask() -> None:
    deployment, service, budget = documents(DEPLOY / "kubernetes" / "service.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = create_app(settings_of("nowhere")).openapi()["paths"]
    probes = {
        kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
    }
    assert probes == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(probes.values()) <= set(paths)
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["terminationGracePeriodSeconds"] > GRACE_SECONDS
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    variables = environment_of(dockerfile("service"))
    assert {variables["STRATA_SERVE_ROOT"], str(Path(variables["STRATA_SERVE_KEYS"]).parent)} <= mounted
    claims = {found["metadata"]["name"] for found in documents(DEPLOY / "kubernetes" / "states.yaml")}
    assert {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    } == claims


def test_no_manifest_holds_a_secret() -> None:
    for path in MANIFESTS:
        assert all(found["kind"] != "Secret" for found in documents(path))
