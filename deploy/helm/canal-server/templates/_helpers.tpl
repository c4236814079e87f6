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

{{/* Whether the page and the probes use TLS. */}}
{{- define "canal-server.httpScheme" -}}
{{- $on := include "canal-server.serverValue" (list . "canal.http.tls") -}}
{{- if and .Values.tls.existingSecret (ne $on "false") -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}
