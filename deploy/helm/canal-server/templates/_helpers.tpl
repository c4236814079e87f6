{{- define "canal-server.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "canal-server.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "canal-server.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "canal-server.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "canal-server.selector" -}}
app.kubernetes.io/name: {{ include "canal-server.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "canal-server.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "canal-server.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "canal-server.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "canal-server.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "canal-server.secret" -}}
{{- .Values.secret.existing | default (ternary (include "canal-server.fullname" .) "" (not (empty .Values.secret.variables))) -}}
{{- end -}}

{{/* The keys of canal.properties: those of the chart, and the user's, which win. */}}
{{- define "canal-server.serverKeys" -}}
{{- $keys := dict
  "canal.ip" "0.0.0.0"
  "canal.port" "11111"
  "canal.http.ip" "0.0.0.0"
  "canal.http.port" "11113"
  "canal.metrics.pull.port" "11112"
  "canal.file.data.dir" "/var/lib/canal-server"
  "canal.destinations" (keys (.Values.destinations | default dict) | sortAlpha | join ",")
-}}
{{- if index .Values.server "canal.zkServers" -}}
{{- $_ := set $keys "canal.instance.global.spring.xml" "classpath:spring/default-instance.xml" -}}
{{- end -}}
{{- if .Values.tls.existingSecret -}}
{{- $_ := set $keys "canal.tls.certFile" "/etc/canal-server-tls/tls.crt" -}}
{{- $_ := set $keys "canal.tls.keyFile" "/etc/canal-server-tls/tls.key" -}}
{{- $_ := set $keys "canal.tls.required" .Values.tls.required -}}
{{- if .Values.tls.clientCaSecret -}}
{{- $_ := set $keys "canal.tls.clientCaFile" "/etc/canal-server-client-ca/ca.crt" -}}
{{- $_ := set $keys "canal.tls.clientCertificates" .Values.tls.clientCertificates -}}
{{- end -}}
{{- end -}}
{{- if .Values.users.existingSecret -}}
{{- $_ := set $keys "canal.users.file" "/etc/canal-server-users/users.yml" -}}
{{- end -}}
{{- range $key, $value := .Values.server -}}
{{- $_ := set $keys $key $value -}}
{{- end -}}
{{- toYaml $keys -}}
{{- end -}}

{{/* A value of the server, as text: `list $ "canal.port"`. */}}
{{- define "canal-server.serverValue" -}}
{{- $keys := include "canal-server.serverKeys" (index . 0) | fromYaml -}}
{{- include "canal-server.text" (index $keys (index . 1)) -}}
{{- end -}}

{{/* A value as text; Helm makes floating-point numbers of integers. */}}
{{- define "canal-server.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}
{{- printf "%.0f" . -}}
{{- else if not (kindIs "invalid" .) -}}
{{- . | toString -}}
{{- end -}}
{{- end -}}

{{/* The lines of a properties file: `dict "keys" … "where" "server"`. */}}
{{- define "canal-server.properties" -}}
{{- $where := .where -}}
{{- range $key, $value := .keys }}
{{- $text := include "canal-server.text" $value }}
{{- if and (regexMatch "(?i)passw(or)?d$" $key) $text (not (hasPrefix "${" $text)) }}
{{- fail (printf "%s.%s: a ConfigMap is no place for a password; set a variable in `secret` and write ${VARIABLE} here, or for a key of the server leave it out and set %s" $where $key ($key | upper | replace "." "_")) }}
{{- end }}
{{ $key }} = {{ $text | replace "\\" "\\\\" | replace "\n" "\\n" }}
{{- end }}
{{- end -}}

{{/* Whether a port has TLS, `true` or nothing: `list $ "canal.http.tls"`. */}}
{{- define "canal-server.hasTls" -}}
{{- $certificate := include "canal-server.serverValue" (list (index . 0) "canal.tls.certFile") -}}
{{- $on := include "canal-server.serverValue" . -}}
{{- if and $certificate (ne (lower $on) "false") -}}true{{- end -}}
{{- end -}}

{{/* How the page and the probes are asked. */}}
{{- define "canal-server.httpScheme" -}}
{{- if include "canal-server.hasTls" (list . "canal.http.tls") -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Values that contradict each other. */}}
{{- define "canal-server.checks" -}}
{{- $zookeeper := index .Values.server "canal.zkServers" -}}
{{- if and (gt (int .Values.replicas) 1) (not $zookeeper) -}}
{{- fail "replicas: more than one server need ZooKeeper, so that only one of them runs a destination: set server.\"canal.zkServers\"" -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecret (not .Values.tls.existingSecret) -}}
{{- fail "tls.clientCaSecret: certificates of clients need TLS: set tls.existingSecret" -}}
{{- end -}}
{{- if and .Values.tls.required (not .Values.tls.existingSecret) -}}
{{- fail "tls.required: TLS needs a certificate: set tls.existingSecret" -}}
{{- end -}}
{{- $secrets := list -}}
{{- range $name := list "tls" "users" -}}
{{- $chosen := (index $.Values $name).existingSecret -}}
{{- if $chosen -}}
{{- $secrets = append $secrets (printf "%s.existingSecret" $name) -}}
{{- end -}}
{{- end -}}
{{- range $key, $owner := dict "canal.tls.certFile" "tls" "canal.tls.keyFile" "tls" "canal.users.file" "users" -}}
{{- $chosen := (index $.Values $owner).existingSecret -}}
{{- if and $chosen (index $.Values.server $key) -}}
{{- fail (printf "server.%s: %s.existingSecret sets it: remove one of them" $key $owner) -}}
{{- end -}}
{{- end -}}
{{- $user := toString (.Values.podSecurityContext.runAsUser | default "") -}}
{{- $root := eq (include "canal-server.text" .Values.podSecurityContext.runAsUser) "0" -}}
{{- $group := .Values.podSecurityContext.fsGroup -}}
{{- if and $secrets $user (not $root) (not $group) -}}
{{- fail (printf "%s: Kubernetes mounts Secrets for root and podSecurityContext.fsGroup: set it to the group of the server" (first $secrets)) -}}
{{- end -}}
{{- if and .Values.users.existingSecret $root $group -}}
{{- fail "users.existingSecret: a server that is root accepts no file that a group can read: remove podSecurityContext.fsGroup, or podSecurityContext.runAsUser = 0" -}}
{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}
{{- include "canal-server.monitorChecks" . -}}
{{- end -}}
{{- end -}}

{{- define "canal-server.monitorChecks" -}}
{{- $users := include "canal-server.serverValue" (list . "canal.users.file") -}}
{{- $monitor := .Values.serviceMonitor -}}
{{- if and $users (not $monitor.basicAuth) (not $monitor.tlsConfig.cert) (not $monitor.tlsConfig.certFile) -}}
{{- fail "serviceMonitor: where there are users, metrics need a log-in: set serviceMonitor.basicAuth to that of a user who may observe" -}}
{{- end -}}
{{- if and $monitor.basicAuth (not $users) -}}
{{- fail "serviceMonitor.basicAuth: without users, metrics have no log-in and everybody can read them: set users.existingSecret" -}}
{{- end -}}
{{- $tls := include "canal-server.hasTls" (list . "canal.metrics.tls") -}}
{{- if and $monitor.tlsConfig (not $tls) -}}
{{- fail "serviceMonitor.tlsConfig: the port for metrics has no TLS: set tls.existingSecret, and do not set server.\"canal.metrics.tls\" to false" -}}
{{- end -}}
{{- if and $tls (not $monitor.tlsConfig) (not .Values.tls.existingSecret) -}}
{{- fail "serviceMonitor.tlsConfig: set it, as the certificate does not come from tls.existingSecret" -}}
{{- end -}}
{{- end -}}
