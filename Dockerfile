# syntax=docker/dockerfile:1
# One image for workers, the DLQ-analysis worker and the command line. Build yours FROM it, put your
# module into /app and name it in ANGZARR_APP.

FROM python:3.13.9-slim-bookworm AS build
WORKDIR /build
COPY requirements/build.txt requirements/image.txt requirements/
RUN python -m venv /opt/angzarr \
 && /opt/angzarr/bin/pip install --no-cache-dir --require-hashes -r requirements/image.txt \
 && pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
RUN pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir dist . \
 && /opt/angzarr/bin/pip install --no-cache-dir --no-deps dist/*.whl \
 && /opt/angzarr/bin/python -m pip uninstall --yes pip

FROM python:3.13.9-slim-bookworm
LABEL org.opencontainers.image.title="angzarr-workers" \
      org.opencontainers.image.description="Celery workers that lose nothing" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --home-dir /app --shell /usr/sbin/nologin angzarr
COPY --from=build /opt/angzarr /opt/angzarr
# Nothing is written outside /tmp: run it with a read-only root file system and a tmpfs there.
ENV PATH=/opt/angzarr/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001:10001
STOPSIGNAL SIGTERM
# Asks this very worker over the broker. Other roles than `worker` bring their own check.
HEALTHCHECK --interval=30s --timeout=15s --start-period=30s --retries=3 \
  CMD celery -A "$ANGZARR_APP" inspect ping --timeout 10 --destination "celery@$HOSTNAME" || exit 1
# `exec` makes Celery PID 1, so that it gets the signals itself.
CMD ["/bin/sh", "-c", "exec celery -A \"${ANGZARR_APP:?name your module in ANGZARR_APP}\" worker --loglevel=INFO"]
