# canal-server in an image: `docker build --tag canal-server .`
#
# The conf folder of the project is its default; mount another one on
# /etc/canal-server, or set single keys as variables (CANAL_INSTANCE_MASTER_ADDRESS=…).
# Other bases: --build-arg BUILD_IMAGE=… --build-arg RUNTIME_IMAGE=…; each is a Debian
# that has the same Python, 3.11 or later, in the same path.

ARG BUILD_IMAGE=python:3.11-slim-bookworm
ARG RUNTIME_IMAGE=python:3.11-slim-bookworm

FROM ${RUNTIME_IMAGE} AS runtime

# Nothing of this stage is in the image except for the environment and the settings.
FROM ${BUILD_IMAGE} AS build
RUN command -v cc && command -v strip \
    || { apt-get update && apt-get install --yes --no-install-recommends build-essential; }
WORKDIR /src
# All packages are those of `make lock`, and have their hashes.
COPY deploy/locks deploy/locks
RUN python3 -m venv /tools \
    && /tools/bin/pip install --no-cache-dir --require-hashes \
        --requirement deploy/locks/build.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY deploy/man deploy/man
COPY deploy/completion deploy/completion
COPY deploy/systemd deploy/systemd
COPY deploy/prometheus deploy/prometheus
COPY deploy/grafana deploy/grafana
COPY deploy/helm deploy/helm
COPY deploy/bin deploy/bin
COPY conf conf
COPY pyspark_canal pyspark_canal
COPY canal_server canal_server
RUN /tools/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .
# The environment needs no pip of its own. Compiled files of Python stay in it: nobody may
# write them later, and each health check would compile anew what it imports. Wheels of
# others bring symbols for debuggers, and tests.
RUN python3 -m venv --without-pip /opt/canal-server \
    && /tools/bin/pip --python /opt/canal-server/bin/python \
        install --no-cache-dir --require-hashes --requirement deploy/locks/server.txt \
    && /tools/bin/pip --python /opt/canal-server/bin/python \
        install --no-cache-dir --no-deps /wheels/*.whl \
    && /tools/bin/pip --python /opt/canal-server/bin/python check \
    && find /opt/canal-server -name '*.so' -exec strip --strip-unneeded {} + \
    && rm -rf /opt/canal-server/lib/python*/site-packages/*/tests
# The software bill of materials, the packages of the image's Debian included.
COPY tools/sbom.py tools/sbom.py
COPY --from=runtime /var/lib/dpkg/status /usr/lib/os-release /debian/
RUN mkdir --parents /opt/canal-server/share/sbom \
    && /tools/bin/python tools/sbom.py environment /opt/canal-server/bin/python \
        --debian /debian > /opt/canal-server/share/sbom/image.cdx.json
RUN cp -r conf /etc/canal-server
# Readable by all, whatever the modes of the checkout are.
RUN chmod -R u=rwX,go=rX /etc/canal-server

FROM runtime
COPY --from=build /opt/canal-server /opt/canal-server
COPY --from=build /etc/canal-server /etc/canal-server
# The last line fails where the base has another Python than that of the build.
RUN groupadd --gid 10001 canal \
    && useradd --uid 10001 --gid canal --no-create-home --home-dir /var/lib/canal-server \
        --shell /usr/sbin/nologin canal \
    && install --directory --owner=canal --group=canal --mode=0700 /var/lib/canal-server \
    && /opt/canal-server/bin/canal-server version
# Within a container 127.0.0.1 is nobody else's: which of the host's addresses lead here
# is said where the port is published.
ENV PATH=/opt/canal-server/bin:$PATH \
    CANAL_CONF=/etc/canal-server \
    CANAL_IP=0.0.0.0 \
    CANAL_FILE_DATA_DIR=/var/lib/canal-server
# By number: Kubernetes cannot see of a name that it is not root.
USER 10001:10001
# Acknowledged positions and the history of tables. A host's folder that is mounted here
# must belong to the user 10001.
VOLUME /var/lib/canal-server
# Clients. Metrics are on 11112, without a login; the page and /healthz are on 11113, but
# for processes in the container only unless CANAL_HTTP_IP is set.
EXPOSE 11111
# Unhealthy: a destination fails, is blocked, or does not run (docs/howto/probes.md).
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["canal-server", "status", "--check", "--timeout", "5s"]
# It ends cleanly within 10 seconds; `docker stop --time 20` does not cut it short.
STOPSIGNAL SIGTERM
ENTRYPOINT ["canal-server"]
CMD ["start", "--conf", "/etc/canal-server"]

ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="canal-server" \
    org.opencontainers.image.description="Change data capture for MySQL and MariaDB" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="$VERSION" \
    org.opencontainers.image.revision="$REVISION"
