# syntax=docker/dockerfile:1
# One image for workers, analysis workers, the dashboard, beat and the command line. Build yours FROM
# it, put your module into /app and name it in ANGZARR_APP: docs/how-to/build-an-image.md.

# A tag may be moved. To pin what it means today, give the digest that your registry tells:
#   --build-arg PYTHON_IMAGE=python:3.13.9-slim-trixie@sha256:…
ARG PYTHON_IMAGE=python:3.13.9-slim-trixie

# -- what we need of others: a layer that changes with requirements/image.txt alone -----------------
FROM ${PYTHON_IMAGE} AS dependencies
WORKDIR /build
RUN python -m venv tools \
 && python -m venv --without-pip /opt/angzarr
COPY requirements/image.txt requirements/
# Only what is built already, so that no compiler is needed. Compiled here, since the root file system
# of a container is read-only; by content, since copies and rebuilds change what time a file tells.
RUN tools/bin/pip --python /opt/angzarr/bin/python install --no-cache-dir --no-compile \
      --only-binary :all: --require-hashes -r requirements/image.txt \
 && /opt/angzarr/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/angzarr \
 && cp requirements/image.txt /opt/angzarr/requirements.txt

# -- angzarr itself --------------------------------------------------------------------------------
FROM dependencies AS package
COPY requirements/build.txt requirements/
RUN tools/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
RUN tools/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir dist . \
 && sha256sum dist/*.whl > dist/sums \
 && sed -E 's|^(\S+) +(\S+)$|/build/\2 --hash=sha256:\1|' dist/sums > dist/wheel.txt \
 && tools/bin/pip --python /opt/angzarr/bin/python install --no-cache-dir --no-compile \
      --no-deps --root /package --require-hashes -r dist/wheel.txt \
 && /opt/angzarr/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      -s /package /package

# -- the result ------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE}
# tini is PID 1: it hands signals on and reaps what its child leaves. Neither pip nor what brings it
# back stays; Python's own modules are compiled, else every start would do it anew.
# hadolint ignore=DL3008 # Debian keeps no old versions to pin; the base image says which release
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/local/bin/pip* \
      /usr/local/lib/python3*/ensurepip /usr/local/lib/python3*/site-packages/pip* \
 && mkdir /app \
 && groupadd --gid 10001 angzarr \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin angzarr \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(tests?|idlelib|site-packages)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=dependencies /opt/angzarr /opt/angzarr
COPY --from=package /package/opt/angzarr /opt/angzarr
# Nothing is written outside /tmp: run it with a read-only root file system and a tmpfs there.
# Workers and analysis workers serve their health on this port, and HEALTHCHECK asks it.
ENV PATH=/opt/angzarr/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    ANGZARR_HEALTH__PORT=8081
WORKDIR /app
USER 10001:10001
STOPSIGNAL SIGTERM
# Of a worker and an analysis worker. The dashboard and beat bring their own check, or none.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
  CMD ["angzarr", "health", "live"]
ENTRYPOINT ["/usr/bin/tini", "--"]
# `exec`, so that tini's child is angzarr and no shell that keeps signals to itself.
CMD ["/bin/sh", "-c", "exec angzarr -A \"${ANGZARR_APP:?is not set: name your module in it, e.g. ANGZARR_APP=orders}\" worker --loglevel=INFO"]
# Last, since they change with every build.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="angzarr-workers" \
      org.opencontainers.image.description="Celery workers that lose nothing" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
