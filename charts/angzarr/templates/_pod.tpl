{{/* Parts of pods, under the restricted profile of Pod Security. */}}

{{- define "angzarr.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.security.uid }}
runAsUser: {{ . | int64 }}
{{- end }}
{{- with .Values.security.gid }}
runAsGroup: {{ . | int64 }}
fsGroup: {{ . | int64 }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "angzarr.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What every container begins with: (dict "root" … "key" …). Only `args`: the image's entry point
is what passes signals on. */}}
{{- define "angzarr.container" -}}
image: {{ include "angzarr.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- include "angzarr.containerSecurity" . | nindent 2 }}
{{- end }}

{{/* What every pod begins with. Without links to services: the variables of a service called
angzarr-… would be settings that angzarr does not know, and refuses. */}}
{{- define "angzarr.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "angzarr.podSecurity" . | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* (dict "root" … "extra" list "spool" bool) */}}
{{- define "angzarr.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .root.Values.config }}
- name: config
  mountPath: /etc/angzarr
  readOnly: true
{{- end }}
{{- if .spool }}
- name: spool
  mountPath: {{ .root.Values.spool.path | quote }}
{{- end }}
{{- with .extra }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* (dict "root" … "extra" list "tmpSize" … "config" name of the ConfigMap) */}}
{{- define "angzarr.volumes" -}}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: {{ .tmpSize }}
{{- if .root.Values.config }}
- name: config
  configMap:
    name: {{ .config }}
{{- end }}
{{- with .extra }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "angzarr.probes" -}}
{{- if .role.probes -}}
{{- $health := eq .role.probes "health" -}}
{{- $port := ternary "health" "http" $health -}}
startupProbe:
  httpGet: {path: {{ ternary "/livez" "/healthz" $health }}, port: {{ $port }}}
  {{- toYaml .role.values.probes.startup | nindent 2 }}
livenessProbe:
  httpGet: {path: {{ ternary "/livez" "/healthz" $health }}, port: {{ $port }}}
  {{- toYaml .role.values.probes.liveness | nindent 2 }}
readinessProbe:
  httpGet: {path: {{ ternary "/readyz" "/healthz" $health }}, port: {{ $port }}}
  {{- toYaml .role.values.probes.readiness | nindent 2 }}
{{- end -}}
{{- end }}

{{/* Spreads pods, and by the template's hash those of each roll-out for themselves. */}}
{{- define "angzarr.spread" -}}
{{- $role := .role -}}
{{- if $role.values.topologySpreadConstraints -}}
topologySpreadConstraints:
  {{- toYaml $role.values.topologySpreadConstraints | nindent 2 }}
{{- else if $role.values.spreadOver -}}
topologySpreadConstraints:
  {{- range $role.values.spreadOver }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $role.values.spreadOrElse }}
    labelSelector:
      matchLabels:
        {{- include "angzarr.selector" $role | nindent 8 }}
    {{- if eq $role.kind "Deployment" }}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end -}}
{{- end }}

{{/* Labels of a role's pods, without the chart's version: a newer chart replaces no pod by itself. */}}
{{- define "angzarr.podLabels" -}}
{{ include "angzarr.selector" .role }}
app.kubernetes.io/part-of: angzarr
app.kubernetes.io/version: {{ include "angzarr.version" .root }}
{{- if eq .role.probes "health" }}
angzarr.io/health: "true"
{{- end }}
{{- end }}

{{/* The pod of a role that runs for long: (dict "root" … "role" …). */}}
{{- define "angzarr.podTemplate" -}}
{{- $root := .root -}}
{{- $role := set .role "root" .root -}}
{{- $values := $role.values -}}
{{- $spool := and $root.Values.spool.enabled (has $role.component (list "worker" "dlq-analysis")) -}}
{{- $own := include "angzarr.roleEnv" . | fromJsonArray -}}
metadata:
  labels:
    {{- mergeOverwrite (deepCopy $values.podLabels) (include "angzarr.podLabels" . | fromYaml) | toYaml | nindent 4 }}
  annotations:
    {{- $told := dict "kubectl.kubernetes.io/default-container" $role.component "checksum/config" ($root.Values.config | toJson | sha256sum) }}
    {{- mergeOverwrite (deepCopy $values.podAnnotations) $told | toYaml | nindent 4 }}
spec:
  serviceAccountName: {{ include "angzarr.serviceAccount" $root | quote }}
  {{- include "angzarr.podBasics" $root | nindent 2 }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "angzarr.spread" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if and $root.Values.doctor.enabled (eq $role.probes "health") }}
  initContainers:
    - name: doctor
      {{- include "angzarr.container" . | nindent 6 }}
      args: [angzarr, -A, {{ $root.Values.app | quote }}, doctor, --fail-on, {{ $root.Values.doctor.failOn }}{{ range $root.Values.doctor.skip }}, --skip, {{ . | quote }}{{ end }}{{ if eq $role.component "worker" }}, --grace, {{ $values.terminationGracePeriodSeconds }}s{{ end }}]
      env:
        {{- include "angzarr.env" (dict "root" $root "key" $role.key "own" $own) | nindent 8 }}
      {{- with include "angzarr.envFrom" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "angzarr.mounts" (dict "root" $root "extra" $values.extraVolumeMounts "spool" $spool) | nindent 8 }}
  {{- end }}
  containers:
    - name: {{ $role.component }}
      {{- include "angzarr.container" . | nindent 6 }}
      args: {{ $role.args | toJson }}
      env:
        {{- include "angzarr.env" (dict "root" $root "key" $role.key "own" $own) | nindent 8 }}
      {{- with include "angzarr.envFrom" $root }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if eq $role.probes "health" }}
      ports:
        - {name: health, containerPort: 8081}
      {{- else if eq $role.probes "dashboard" }}
      ports:
        - {name: http, containerPort: {{ $root.Values.dashboard.port }}}
      {{- end }}
      {{- with include "angzarr.probes" . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- if gt ($values.preStopSleepSeconds | int) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ $values.preStopSleepSeconds }}}
      {{- end }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "angzarr.mounts" (dict "root" $root "extra" $values.extraVolumeMounts "spool" $spool) | nindent 8 }}
  volumes:
    {{- include "angzarr.volumes" (dict "root" $root "extra" $values.extraVolumes "tmpSize" $values.tmpSize "config" (include "angzarr.name" (list $root "config"))) | nindent 4 }}
{{- end }}
