# What makes datasets: the driver, and every node of its Ray cluster. From the root of the repository:
#
#   docker build --file deploy/datagen.Dockerfile --tag strata-datagen .
#
# The same image serves CPU and GPU nodes: PyPI's torch brings CUDA's libraries, the host brings the driver. For a
# small CPU image add --build-arg TORCH_INDEX=URL, the URL being that of PyTorch's own index of CPU builds. For the
# engine vllm add --build-arg EXTRAS=datagen,vllm; which torch it takes is vLLM's to say.
# The base is pinned by its tag. Pin its digest too (PYTHON=3.11.14-slim-bookworm@sha256:...) where you build.
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ARG TORCH_INDEX
ARG EXTRAS=datagen
WORKDIR /build
RUN python -m venv /opt/strata
COPY . .
# torch by itself: its index has nothing else that is needed.
RUN /opt/strata/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} \
        "$(grep '^torch==' deploy/constraints-cpu.txt)" \
    && /opt/strata/bin/pip install --no-cache-dir --constraint deploy/constraints-cpu.txt ".[${EXTRAS}]"

FROM python:${PYTHON}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="strata-datagen" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
# KubeRay's probes of a Ray pod call wget. No version is pinned: Debian keeps only the newest of a release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/*
# The folders are there so that new volumes are the user's own.
RUN groupadd --gid 10001 strata \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/strata strata \
    && install --directory --owner strata --group strata /var/lib/strata /var/lib/strata/.ray /srv/states
COPY --from=build /opt/strata /opt/strata
COPY deploy/runs /srv/runs
ENV PATH=/opt/strata/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/strata \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_AUTH_MODE=token
USER 10001:10001
WORKDIR /var/lib/strata
EXPOSE 6379 8265
# Of a container that is a Ray node; what runs one command ends before it is asked.
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s CMD ["ray", "health-check"]
CMD ["strata", "--help"]
