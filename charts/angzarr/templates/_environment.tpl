{{/* Environment of a container: (dict "root" … "key" role "own" list of further variables). Of two
with one name the API server takes the last, or none at all: it depends on who applies them. */}}
{{- define "angzarr.env" -}}
{{- $made := include "angzarr.variables" . -}}
{{- $seen := dict -}}
{{- range $made | fromYamlArray -}}
{{- if hasKey $seen .name }}{{ fail (printf "%s would be set twice in one container, by the chart, secretEnv, extraEnv or env: keep one of them" .name) }}{{ end -}}
{{- $_ := set $seen .name true -}}
{{- end -}}
{{ $made }}
{{- end }}

{{/* A role's own wins over what is said for all. */}}
{{- define "angzarr.variables" -}}
{{- $root := .root -}}
{{- $key := .key -}}
- name: ANGZARR_APP
  value: {{ $root.Values.app | quote }}
- name: ANGZARR_RELEASE
  value: {{ include "angzarr.release" $root | quote }}
{{- if $root.Values.config }}
- name: ANGZARR_CONFIG
  value: /etc/angzarr/angzarr.yaml
{{- end }}
{{- if $root.Values.spool.enabled }}
- name: ANGZARR_DLQ__SPOOL__PATH
  value: {{ $root.Values.spool.path | quote }}
- name: ANGZARR_DLQ__SPOOL__MAX_BYTES
  value: {{ $root.Values.spool.maxBytes | int64 | quote }}
- name: ANGZARR_DLQ__SPOOL__DURABLE
  value: "true"
{{- end }}
{{- if and $root.Values.migrations.exclusive (ne $key "migrations") }}
{{- range list "ANGZARR_LEDGER_MIGRATE" "ANGZARR_BOOKS_MIGRATE" "ANGZARR_ORDERING__MIGRATE" "ANGZARR_CONFIGURATION__MIGRATE" }}
- name: {{ . }}
  value: "false"
{{- end }}
{{- end }}
{{- range $variable, $from := $root.Values.secretEnv }}
{{- if or (not $from.roles) (has $key $from.roles) }}
- name: {{ $variable | quote }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.name | quote }}
      key: {{ $from.key | quote }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range .own }}{{ $names = append $names .name }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- range $root.Values.extraEnv }}
{{- if not (has .name $names) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- define "angzarr.envFrom" -}}
{{- with .Values.secretEnvFrom -}}
envFrom:
  {{- range . }}
  - secretRef:
      name: {{ .name | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Variables of one role alone, as JSON: (dict "root" … "role" …). */}}
{{- define "angzarr.roleEnv" -}}
{{- $own := list -}}
{{- if eq .role.probes "health" -}}
{{- $own = concat $own (list (dict "name" "ANGZARR_HEALTH__HOST" "value" .root.Values.listenOn) (dict "name" "ANGZARR_HEALTH__PORT" "value" "8081")) -}}
{{- end -}}
{{- if eq .role.component "worker" -}}
{{- $own = append $own (dict "name" "ANGZARR_SOFT_SHUTDOWN_TIMEOUT" "value" (toString .role.values.softShutdownTimeoutSeconds)) -}}
{{- end -}}
{{- if eq .role.component "dashboard" -}}
{{- $hosts := include "angzarr.dashboardHosts" .root | fromJsonArray -}}
{{- if $hosts }}{{ $own = append $own (dict "name" "ANGZARR_DASHBOARD__HOSTS" "value" ($hosts | toJson)) }}{{ end -}}
{{- with .root.Values.dashboard.forwardedAllowIPs }}{{ $own = append $own (dict "name" "FORWARDED_ALLOW_IPS" "value" .) }}{{ end -}}
{{- end -}}
{{ concat $own .role.values.env | toJson }}
{{- end }}

{{/* The names by which people reach the dashboard, as the chart knows them, as JSON. */}}
{{- define "angzarr.dashboardHosts" -}}
{{- $hosts := .Values.dashboard.hosts -}}
{{- if .Values.dashboard.ingress.enabled }}{{ $hosts = concat $hosts .Values.dashboard.ingress.hosts }}{{ end -}}
{{- if $hosts }}{{ $hosts = concat $hosts (dig "dashboard" "hosts" list .Values.config) }}{{ end -}}
{{ $hosts | uniq | toJson }}
{{- end }}
