"""The Helm chart: valid for Kubernetes, and its settings are valid for the server.

`helm` is in the PATH, or HELM names it; the schemas of Kubernetes are those of the
package kubernetes-validate. Without one of them the tests are skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from canal_server import __version__
from canal_server.config.load import load
from canal_server.errors import ConfigError
from canal_server.users.users_file import read_users

CHART = Path(__file__).parents[2] / "deploy/helm/canal-server"
VALUES = Path(__file__).parent / "helm"
CASES = sorted(path.stem for path in VALUES.glob("*.yaml"))
HELM = os.environ.get("HELM") or shutil.which("helm")
KUBERNETES = "1.34.0"
needs_helm = pytest.mark.skipif(
    HELM is None, reason="no helm: go install helm.sh/helm/v3/cmd/helm@latest"
)


def helm(*arguments: str, settings: str = ""):
    """Run helm; `settings` are further values, as YAML."""
    return subprocess.run(
        [str(HELM), *arguments, "--values", "-"],
        input=settings,
        capture_output=True,
        text=True,
        check=False,
    )


def template(case: str, settings: str = ""):
    """Render the chart with the values of a case; returns the result."""
    return helm(
        "template", "test", str(CHART), "--namespace", "cdc",
        "--kube-version", KUBERNETES, "--values", str(VALUES / f"{case}.yaml"),
        settings=settings,
    )  # fmt: skip


def objects(case: str, settings: str = "") -> dict[str, Any]:
    """Return the objects of a case by their kinds and names."""
    done = template(case, settings)
    assert done.returncode == 0, done.stderr
    return {
        f"{each['kind']}/{each['metadata']['name']}": each
        for each in yaml.safe_load_all(done.stdout)
        if each
    }


def conf_folder(found: dict[str, Any], folder: Path) -> Path:
    """Lay the ConfigMap out as Kubernetes does: files behind a link `..data`."""
    (config_map,) = (each for key, each in found.items() if key.startswith("ConfigMap"))
    (stateful_set,) = (each for key, each in found.items() if key.startswith("State"))
    volumes = stateful_set["spec"]["template"]["spec"]["volumes"]
    (items,) = (v["configMap"]["items"] for v in volumes if v["name"] == "settings")
    data = folder / "..2026_01_01"
    for item in items:
        path = data / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_map["data"][item["key"]])
    (folder / "..data").symlink_to(data.name)
    for each in data.iterdir():
        (folder / each.name).symlink_to(Path("..data") / each.name)
    return folder


def container_of(found: dict[str, Any]) -> Any:
    """Return the container of the pods."""
    (pods,) = (each for key, each in found.items() if key.startswith("StatefulSet"))
    return pods["spec"]["template"]["spec"]["containers"][0]


def test_versions():
    """The chart installs the version of this package."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_lint(case):
    """Helm finds nothing to warn of."""
    done = helm("lint", "--strict", str(CHART), "--values", f"{VALUES / case}.yaml")
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_objects_are_valid(case):
    """Every object is as the schema of its kind wants it, without unknown fields."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("no kubernetes-validate: pip install kubernetes-validate")
    schemas = importlib.import_module("kubernetes_validate")
    for name, each in objects(case).items():
        if name.startswith("ServiceMonitor"):  # of an operator, not of Kubernetes
            continue
        schemas.validate(each, KUBERNETES.rpartition(".")[0], strict=True)


@needs_helm
def test_settings_are_valid(tmp_path):
    """The server reads the conf folder of the pod, with the passwords of the Secret."""
    found = objects("shop")
    secret = found["Secret/test-canal-server"]["stringData"]
    environ = {each["name"]: each["value"] for each in container_of(found)["env"]}
    config = load(conf_folder(found, tmp_path), environ | secret)
    server = config.server
    assert (server.ip, server.http_ip, server.metrics_port) == (
        "0.0.0.0", "0.0.0.0", 11112,
    )  # fmt: skip
    assert str(config.data_dir) == "/var/lib/canal-server"
    assert [each.destination for each in config.instances] == ["example", "shop"]
    assert config.warnings == ()
    texts = (tmp_path / "shop/instance.properties").read_text()
    assert r"canal.instance.filter.regex = shop\\..*" in texts
    assert "canal.instance.master.timestamp = 1700000000000" in texts


@needs_helm
def test_settings_of_a_cluster(tmp_path):
    """Cursors are in ZooKeeper, and each pod registers its own name."""
    found = objects("cluster")
    container = container_of(found)
    environ = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert environ["CANAL_REGISTER_IP"] == (
        "$(POD_NAME).test-canal-server-pods.cdc.svc"
    )
    assert container["ports"][0]["containerPort"] == 21111
    assert container["envFrom"] == [{"secretRef": {"name": "passwords"}}]
    assert "Secret/test-canal-server" not in found
    conf = conf_folder(found, tmp_path)
    environ |= {
        "CANAL_INSTANCE_DBPASSWORD": "x",
        "CANAL_PASSWD": "0" * 40,
        "CANAL_REGISTER_IP": "pod-0.svc",
    }
    server = load(conf, environ).server
    assert server.port == 21111
    assert server.tls.required
    assert str(server.tls.cert_file) == "/etc/canal-server-tls/tls.crt"
    assert server.tls.cert_file
    assert server.tls.client_ca_file
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert str(server.tls.cert_file.parent) in mounts
    assert str(server.tls.client_ca_file.parent) in mounts


@needs_helm
def test_probes_and_ports():
    """The probes ask the page, with TLS if the server has a certificate."""
    for case, scheme in (
        ("shop", "HTTP"),
        ("cluster", "HTTPS"),
        ("users", "HTTPS"),
        ("bare", "HTTP"),
    ):
        container = container_of(objects(case))
        ports = {each["name"] for each in container["ports"]}
        for name, path in (
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ):
            request = container[name]["httpGet"]
            assert request == {"path": path, "port": "http", "scheme": scheme}
            assert request["port"] in ports
    plain = 'server: {"canal.http.tls": false}'
    container = container_of(objects("cluster", plain))
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    own = 'server: {"canal.tls.certFile": /a, "canal.tls.keyFile": /b}'
    container = container_of(objects("shop", own))
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


@needs_helm
def test_users(tmp_path):
    """The file of users comes from a Secret, for the server and nobody else."""
    found = objects("users")
    container = container_of(found)
    environ = {each["name"]: each["value"] for each in container["env"]}
    secret = found["Secret/test-canal-server"]["stringData"]
    server = load(conf_folder(found, tmp_path), environ | secret).server
    assert server.tls.required
    assert server.users_file
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts["users"]["mountPath"] == str(server.users_file.parent)
    assert mounts["users"]["readOnly"]
    pods = found["StatefulSet/test-canal-server"]["spec"]["template"]["spec"]
    (mounted,) = (v["secret"] for v in pods["volumes"] if v["name"] == "users")
    assert mounted == {
        "secretName": "canal-users",
        "items": [{"key": "users.yml", "path": server.users_file.name}],
        "defaultMode": 0o400,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize(
    ("uid", "groups", "owner", "mode", "accepted"),
    [
        # With fsGroup, Kubernetes adds 0440 to the mode of a file of a Secret.
        (10001, [10001], (0, 10001), 0o440, True),
        (1000650000, [0, 1000650000], (0, 1000650000), 0o440, True),
        (0, [0], (0, 0), 0o400, True),
        # What the chart refuses.
        (10001, [10001], (0, 0), 0o400, False),
        (0, [0, 10001], (0, 10001), 0o440, False),
        # What Kubernetes mounts without a defaultMode.
        (10001, [10001], (0, 10001), 0o644, False),
    ],
)
def test_the_mode_of_users(tmp_path, uid, groups, owner, mode, accepted):  # noqa: PLR0917
    """The server reads the file as Kubernetes mounts it for the values of the chart."""
    data = tmp_path / "mount/..2026_01_01"
    data.mkdir(parents=True)
    data.chmod(0o755)
    data.parent.chmod(0o755)
    file = data / "users.yml"
    file.write_text("users: {reader: {read: [{destination: shop}]}}\n")
    os.chown(file, *owner)
    file.chmod(mode)
    (tmp_path / "mount/..data").symlink_to(data.name)
    (tmp_path / "mount/users.yml").symlink_to("..data/users.yml")
    child = os.fork()
    if not child:
        try:
            os.chdir(tmp_path / "mount")  # others may not pass the folders above
            os.setgroups(groups)
            os.setgid(groups[0])
            os.setuid(uid)
            os._exit(0 if set(read_users(Path("users.yml"))) == {"reader"} else 2)
        except ConfigError:
            os._exit(1)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if accepted else 1)


@needs_helm
def test_prometheus_logs_in():
    """The operator's Prometheus uses the log-in and the TLS of the values."""

    def endpoint(case: str, settings: str = "") -> dict[str, Any]:
        found = objects(case, settings)["ServiceMonitor/test-canal-server"]
        (endpoint,) = found["spec"]["endpoints"]
        return dict(endpoint)

    found = endpoint("users")
    assert found["scheme"] == "https"
    assert found["basicAuth"] == {
        "username": {"name": "prometheus-login", "key": "username"},
        "password": {"name": "prometheus-login", "key": "password"},
    }
    assert found["tlsConfig"] == {
        "ca": {"configMap": {"name": "company", "key": "ca.crt"}},
        "serverName": "canal.example.com",
    }
    found = endpoint("cluster")
    assert "basicAuth" not in found
    assert found["tlsConfig"]["ca"]["secret"]["name"] == "canal-tls"
    # Where the platform chooses the user and the group, the values have none.
    none = "{runAsUser: null, runAsGroup: null, fsGroup: null}"
    assert endpoint("users", f"podSecurityContext: {none}")
    # A certificate is a log-in, too.
    certificate = "{cert: {secret: {name: p, key: tls.crt}}, keySecret: {name: p}}"
    found = endpoint(
        "users",
        f"serviceMonitor: {{basicAuth: null, tlsConfig: {certificate}}}",
    )
    assert "basicAuth" not in found
    clear = 'server: {"canal.metrics.tls": false}\nserviceMonitor: {tlsConfig: null}'
    found = endpoint("users", clear)
    assert (found["scheme"], "tlsConfig" in found) == ("http", False)


@needs_helm
def test_rights():
    """The container runs without root, capabilities, or a file system to write to."""
    pods = objects("shop")["StatefulSet/test-canal-server"]["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsNonRoot"] is True
    assert pods["automountServiceAccountToken"] is False
    # A service named canal would set CANAL_PORT, which overrides canal.port.
    assert pods["enableServiceLinks"] is False
    container = pods["containers"][0]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]


@needs_helm
def test_what_is_optional():
    """Objects that are turned off are not there, and data then ends with the pod."""
    found = objects("bare")
    assert set(found) == {
        "ConfigMap/canal", "Service/canal", "Service/canal-pods", "StatefulSet/canal",
    }  # fmt: skip
    spec = found["StatefulSet/canal"]["spec"]
    assert "volumeClaimTemplates" not in spec
    assert {"name": "data", "emptyDir": {}} in spec["template"]["spec"]["volumes"]
    assert "ServiceMonitor/test-canal-server" in objects("cluster")


@needs_helm
def test_a_change_restarts_the_pods():
    """Changed settings and passwords change the pods' template."""

    def annotations(settings: str = "") -> dict[str, str]:
        found = objects("shop", settings)["StatefulSet/test-canal-server"]
        kept: dict[str, str] = found["spec"]["template"]["metadata"]["annotations"]
        return kept

    before = annotations()
    assert annotations() == before
    for settings, name in (
        ('server: {"canal.user": canal}', "checksum/settings"),
        ("secret: {variables: {SHOP_PASSWORD: other}}", "checksum/secret"),
    ):
        after = annotations(settings)
        assert {k for k, v in after.items() if v != before[k]} == {name}


USERS = "users: {existingSecret: a}\n"
TLS = "tls: {existingSecret: a}\n"
LOGIN = "{username: {name: a, key: b}, password: {name: a, key: c}}"
MONITOR = "serviceMonitor: {enabled: true}\n"


@needs_helm
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("destinations: null", "destinations: name at least one"),
        ("replicas: 2", 'set server."canal.zkServers"'),
        ("tls: {clientCaSecret: a}", "set tls.existingSecret"),
        (
            'destinations: {shop: {"canal.instance.dbPassword": geheim}}',
            "destinations.shop.canal.instance.dbPassword: a ConfigMap is no place",
        ),
        ("tls: {required: true}", "tls.required: TLS needs a certificate"),
        (
            f'{TLS}server: {{"canal.tls.keyFile": /x}}',
            "server.canal.tls.keyFile: tls.existingSecret sets it",
        ),
        (
            f'{USERS}server: {{"canal.users.file": x.yml}}',
            "server.canal.users.file: users.existingSecret sets it",
        ),
        (
            f"{USERS}podSecurityContext: {{fsGroup: null}}",
            "users.existingSecret: Kubernetes mounts Secrets for root and pod",
        ),
        (
            f"{TLS}podSecurityContext: {{fsGroup: null}}",
            "tls.existingSecret: Kubernetes mounts Secrets for root and pod",
        ),
        (
            f"{USERS}podSecurityContext: {{runAsUser: 0}}",
            "users.existingSecret: a server that is root accepts no file",
        ),
        (USERS + MONITOR, "serviceMonitor: where there are users, metrics need a lo"),
        (
            f'{MONITOR}server: {{"canal.users.file": /x/users.yml}}',
            "serviceMonitor: where there are users, metrics need a log-in",
        ),
        (
            f"serviceMonitor: {{enabled: true, basicAuth: {LOGIN}}}",
            "serviceMonitor.basicAuth: without users, metrics have no log-in",
        ),
        (
            "serviceMonitor: {enabled: true, basicAuth: {username: {name: a, key: b}}}",
            "password",
        ),
        (
            "serviceMonitor: {enabled: true, tlsConfig: {serverName: x}}",
            "serviceMonitor.tlsConfig: the port for metrics has no TLS",
        ),
        (
            f'{MONITOR}server: {{"canal.tls.certFile": /x, "canal.tls.keyFile": /x}}',
            "serviceMonitor.tlsConfig: set it, as the certificate does not come from",
        ),
        ('server: {"canal.passwd": geheim}', "set CANAL_PASSWD"),
        ("replica: 2", "replica"),
        ("server: {port: 1}", "port"),
        ("destinations: {a/b: {}}", "a/b"),
    ],
)
def test_wrong_values(settings, text):
    """The error names the value, and what to do; it has no password."""
    done = template("shop", settings)
    assert done.returncode != 0
    assert text in done.stderr
    assert "geheim" not in done.stderr
