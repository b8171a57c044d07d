# The service alone: no torch, no Ray. From the root of the repository:
#
#   docker build --file deploy/service.Dockerfile --tag strata-service .
#
# The base is pinned by its tag. Pin its digest too (PYTHON=3.11.14-slim-bookworm@sha256:...) where you build.
ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
RUN python -m venv /opt/strata
COPY . .
RUN /opt/strata/bin/pip install --no-cache-dir --constraint deploy/constraints-cpu.txt '.[service]'

FROM python:${PYTHON}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="strata-service" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
# The folders are there so that new volumes are the user's own.
RUN groupadd --gid 10001 strata \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/strata strata \
    && install --directory --owner strata --group strata /var/lib/strata /srv/states /srv/keys
COPY --from=build /opt/strata /opt/strata
# Every address, so keys are a must: without their file the service does not start, and says how to make one.
ENV PATH=/opt/strata/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STRATA_SERVE_HOST=0.0.0.0 \
    STRATA_SERVE_PORT=8350 \
    STRATA_SERVE_ROOT=/srv/states \
    STRATA_SERVE_KEYS=/srv/keys/keys.json
USER 10001:10001
WORKDIR /var/lib/strata
EXPOSE 8350
HEALTHCHECK --interval=30s --timeout=5s --start-period=15s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8350/healthz', timeout=4)"]
ENTRYPOINT ["strata"]
CMD ["serve"]
