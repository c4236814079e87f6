# canal-server in an image: `docker build --tag canal-server .`
#
# The conf folder of the project is its default; mount another one on
# /etc/canal-server, or set single keys as variables (CANAL_INSTANCE_MASTER_ADDRESS=…).

# Any Debian with Python 3.11 or later.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md ./
COPY canal_server canal_server
RUN python -m venv /opt/canal-server && /opt/canal-server/bin/pip install --no-cache-dir .

# The compiler stays behind; the environment keeps its path.
FROM ${PYTHON_IMAGE}
COPY --from=build /opt/canal-server /opt/canal-server
COPY conf /etc/canal-server
RUN useradd --system canal \
    && install --directory --owner=canal --mode=0700 /var/lib/canal-server
USER canal
# Within a container 127.0.0.1 is nobody else's: which of the host's addresses lead here
# is said where the port is published.
ENV PATH=/opt/canal-server/bin:$PATH \
    CANAL_CONF=/etc/canal-server \
    CANAL_IP=0.0.0.0 \
    CANAL_FILE_DATA_DIR=/var/lib/canal-server
VOLUME /var/lib/canal-server
EXPOSE 11111
# Unhealthy: a destination fails, is blocked, or does not run (docs/howto/probes.md).
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["canal-server", "status", "--check", "--timeout", "5s"]
# SIGTERM, as `docker stop` sends it, ends it cleanly.
ENTRYPOINT ["canal-server"]
CMD ["start", "--conf", "/etc/canal-server"]
