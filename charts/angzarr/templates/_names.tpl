{{/* Names and labels. */}}

{{- define "angzarr.chart" -}}
{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* A name of at most 52 characters: the longest that a StatefulSet's pods and a Job's label can
bear. A longer one keeps its head and gets a digest, so that two never become the same. */}}
{{- define "angzarr.short" -}}
{{- if gt (len .) 52 -}}
{{ printf "%s-%s" (. | trunc 43 | trimSuffix "-" | trimSuffix ".") (. | sha256sum | trunc 8) }}
{{- else -}}
{{ . }}
{{- end -}}
{{- end }}

{{/* What all names begin with, however long. */}}
{{- define "angzarr.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name $name }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The name of a part: (list root "part"). */}}
{{- define "angzarr.name" -}}
{{ include "angzarr.short" (printf "%s-%s" (include "angzarr.fullname" (index . 0)) (index . 1)) }}
{{- end }}

{{- define "angzarr.appName" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What selects the pods of this release. */}}
{{- define "angzarr.releaseLabels" -}}
app.kubernetes.io/name: {{ include "angzarr.appName" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* What selects the pods of one role: the role as `angzarr.role` makes it. */}}
{{- define "angzarr.selector" -}}
{{ include "angzarr.releaseLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- if .pool }}
angzarr.io/pool: {{ .pool | quote }}
{{- end }}
{{- end }}

{{/* Labels of an object: (list root "component"). */}}
{{- define "angzarr.labels" -}}
{{- $root := index . 0 -}}
{{ include "angzarr.releaseLabels" $root }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: angzarr
app.kubernetes.io/managed-by: {{ $root.Release.Service | quote }}
app.kubernetes.io/version: {{ include "angzarr.version" $root }}
helm.sh/chart: {{ include "angzarr.chart" $root }}
{{- end }}

{{/* The same, and the user's: (list root "component" labels). The chart's stay what they are. */}}
{{- define "angzarr.labelsWith" -}}
{{ mergeOverwrite (deepCopy (index . 2)) (include "angzarr.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* The version of the user's code. */}}
{{- define "angzarr.release" -}}
{{ default .Values.image.tag .Values.release }}
{{- end }}

{{/* The same as a label can bear it. */}}
{{- define "angzarr.version" -}}
{{ regexReplaceAll "[^A-Za-z0-9_.-]" (include "angzarr.release" .) "_" | trunc 63 | trimAll "-_." | quote }}
{{- end }}

{{- define "angzarr.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "angzarr.short" (include "angzarr.fullname" .)) .Values.serviceAccount.name }}
{{- else -}}
{{ .Values.serviceAccount.name }}
{{- end -}}
{{- end }}
