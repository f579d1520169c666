{{/* What the API server would refuse halfway through an installation: said before it begins. */}}

{{- define "angzarr.checkPods" -}}
{{- include "angzarr.checkResources" (dict "what" "defaults" "resources" .Values.defaults.resources) -}}
{{- range include "angzarr.roles" . | fromJsonArray -}}
{{- $values := .values -}}
{{- include "angzarr.checkResources" (dict "what" .what "resources" $values.resources) -}}
{{- include "angzarr.checkVolumes" (dict "root" $ "role" .) -}}
{{- if and (eq .kind "Deployment") (ge ($values.minReadySeconds | int) ($values.progressDeadlineSeconds | int)) -}}
{{ fail (printf "%s: minReadySeconds %v is not below progressDeadlineSeconds %v, after which a roll-out is called failed: lower it" .what $values.minReadySeconds $values.progressDeadlineSeconds) }}
{{- end -}}
{{- end -}}
{{- include "angzarr.checkServiceNames" . -}}
{{- end }}

{{/* A request that is raised alone would stand above the limit of the defaults. */}}
{{- define "angzarr.checkResources" -}}
{{- $limits := .resources.limits | default dict -}}
{{- $what := .what -}}
{{- range $resource, $request := .resources.requests | default dict -}}
{{- $limit := get $limits $resource -}}
{{- if and (not (empty $limit)) (gt (include "angzarr.quantity" $request | float64) (include "angzarr.quantity" $limit | float64)) -}}
{{ fail (printf "%s: resources.requests.%s %v is above resources.limits.%s %v: raise the limit too" $what $resource $request $resource $limit) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A quantity of Kubernetes as a number: 250m is 0.25, 1Ki is 1024. */}}
{{- define "angzarr.quantity" -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- $number := trimSuffix $unit (toString .) | float64 -}}
{{- $factor := get (dict "" 1.0 "m" 1e-3 "k" 1e3 "Ki" 1024.0 "M" 1e6 "Mi" 1048576.0 "G" 1e9 "Gi" 1073741824.0 "T" 1e12 "Ti" 1099511627776.0 "P" 1e15 "Pi" 1125899906842624.0 "E" 1e18 "Ei" 1152921504606846976.0) $unit -}}
{{ printf "%f" (mulf $number ($factor | default 1.0)) }}
{{- end }}

{{- define "angzarr.checkVolumes" -}}
{{- $what := .role.what -}}
{{- range .role.values.extraVolumes -}}
{{- if has .name (list "tmp" "config" "spool") -}}
{{ fail (printf "%s: a volume in extraVolumes is called %s, as one of the chart's: call it something else" $what .name) }}
{{- end -}}
{{- end -}}
{{- $taken := list "/tmp" "/etc/angzarr" -}}
{{- if .root.Values.spool.enabled -}}
{{- $path := trimSuffix "/" .root.Values.spool.path -}}
{{- if has $path $taken }}{{ fail (printf "spool.path %s is taken by another volume of the chart: name another" $path) }}{{ end -}}
{{- $taken = append $taken $path -}}
{{- end -}}
{{- range .role.values.extraVolumeMounts -}}
{{- if has (trimSuffix "/" (toString .mountPath)) $taken -}}
{{ fail (printf "%s: extraVolumeMounts has %s, where the chart mounts a volume itself: mount it elsewhere" $what .mountPath) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A service's name is a label of DNS, stricter than all other names; a release's need not be. */}}
{{- define "angzarr.checkServiceNames" -}}
{{- $name := include "angzarr.fullname" . -}}
{{- $wanted := or .Values.spool.enabled .Values.dashboard.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{- if and $wanted (not (regexMatch "^[a-z][-a-z0-9]*$" $name)) -}}
{{ fail (printf "services are called %s-…, and their names begin with a letter and have no dot: set fullnameOverride" $name) }}
{{- end -}}
{{- end }}
