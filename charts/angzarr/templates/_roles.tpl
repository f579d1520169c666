{{/* Roles: what each kind of process is, as a map that the other templates work on. */}}

{{/* All pools, each with its defaults filled in, as JSON. */}}
{{- define "angzarr.pools" -}}
{{- $made := list -}}
{{- range .Values.pools -}}
{{- $filled := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy $.Values.poolDefaults) (deepCopy .) -}}
{{- $role := dict "component" "worker" "pool" .name "values" $filled "what" (printf "pool %q" .name) "key" "worker" "probes" "health" -}}
{{- $_ := set $role "name" (include "angzarr.name" (list $ (printf "worker-%s" .name))) -}}
{{- $_ := set $role "kind" (ternary "StatefulSet" "Deployment" $.Values.spool.enabled) -}}
{{- $after := ternary 2.5 10.0 (has $filled.pool (list "prefork" "gevent")) -}}
{{- $_ := set $role "grace" (dict "seconds" $filled.softShutdownTimeoutSeconds "name" "softShutdownTimeoutSeconds" "after" $after) -}}
{{- $_ := set $role "args" (include "angzarr.workerArgs" (dict "root" $ "pool" $filled) | fromJsonArray) -}}
{{- $made = append $made $role -}}
{{- end -}}
{{ $made | toJson }}
{{- end }}

{{/* `angzarr worker`; or Celery's own command, for pools that only that has. */}}
{{- define "angzarr.workerArgs" -}}
{{- $pool := .pool -}}
{{- $celerys := has $pool.pool (list "prefork" "gevent") -}}
{{- $args := list (ternary "celery" "angzarr" $celerys) "-A" .root.Values.app "worker" "--loglevel" (upper .root.Values.logLevel) -}}
{{- if $celerys -}}
{{- $args = concat $args (list "--pool" $pool.pool "--concurrency" ($pool.concurrency | int64 | toString)) -}}
{{- else -}}
{{- $most := ternary 1 $pool.concurrency (has $pool.pool (list "threads" "solo")) -}}
{{- $threads := ternary $pool.concurrency $pool.threads (eq $pool.pool "threads") -}}
{{- if $pool.autoscale -}}
{{- $args = concat $args (list "--autoscale" (printf "%d,%d" ($pool.autoscale.least | int64) ($pool.autoscale.most | int64))) -}}
{{- else -}}
{{- $args = concat $args (list "--processes" ($pool.processes | default $most | int64 | toString)) -}}
{{- end -}}
{{- if $threads }}{{ $args = concat $args (list "--threads" ($threads | int64 | toString)) }}{{ end -}}
{{- if $pool.coroutines }}{{ $args = concat $args (list "--coroutines" ($pool.coroutines | int64 | toString)) }}{{ end -}}
{{- end -}}
{{- $args = concat $args (list "--queues" (join "," $pool.queues) "--prefetch-multiplier" ($pool.prefetchMultiplier | int64 | toString)) -}}
{{- if $pool.maxTasksPerChild -}}
{{- $args = concat $args (list "--max-tasks-per-child" ($pool.maxTasksPerChild | int64 | toString)) -}}
{{- end -}}
{{ concat $args $pool.extraArgs | toJson }}
{{- end }}

{{- define "angzarr.analysisRole" -}}
{{- $filled := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.analysis) -}}
{{- $args := list "angzarr" "-A" .Values.app "dlq" "analyze" "--log-level" .Values.logLevel -}}
{{- range .Values.analysis.domains }}{{ $args = concat $args (list "--domain" .) }}{{ end -}}
{{- $role := dict "component" "dlq-analysis" "pool" "" "values" $filled "what" "analysis" "key" "analysis" "probes" "health" -}}
{{- $_ := set $role "name" (include "angzarr.name" (list . "dlq-analysis")) -}}
{{- $_ := set $role "kind" (ternary "StatefulSet" "Deployment" .Values.spool.enabled) -}}
{{- $_ := set $role "args" (concat $args $filled.extraArgs) -}}
{{ $role | toJson }}
{{- end }}

{{- define "angzarr.dashboardRole" -}}
{{- $filled := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.dashboard) -}}
{{- $args := list "angzarr" "-A" .Values.app "dashboard" "serve" "--host" .Values.listenOn "--port" (.Values.dashboard.port | int64 | toString) "--log-level" .Values.logLevel -}}
{{- $role := dict "component" "dashboard" "pool" "" "values" $filled "what" "dashboard" "key" "dashboard" "kind" "Deployment" "probes" "dashboard" -}}
{{- $_ := set $role "name" (include "angzarr.name" (list . "dashboard")) -}}
{{- $_ := set $role "grace" (dict "seconds" 10 "name" "requests under way" "after" 0) -}}
{{- $_ := set $role "args" (concat $args $filled.extraArgs) -}}
{{ $role | toJson }}
{{- end }}

{{- define "angzarr.beatRole" -}}
{{- $filled := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.beat) (dict "replicas" 1) -}}
{{- $args := list "celery" "-A" .Values.app "beat" "--loglevel" (upper .Values.logLevel) "--schedule" "/tmp/celerybeat-schedule" "--pidfile" "" -}}
{{- $role := dict "component" "beat" "pool" "" "values" $filled "what" "beat" "key" "beat" "kind" "Deployment" "probes" "" -}}
{{- $_ := set $role "name" (include "angzarr.name" (list . "beat")) -}}
{{- $_ := set $role "args" (concat $args $filled.extraArgs) -}}
{{ $role | toJson }}
{{- end }}

{{/* All roles that run for long, as JSON. */}}
{{- define "angzarr.roles" -}}
{{- $made := include "angzarr.pools" . | fromJsonArray -}}
{{- if .Values.analysis.enabled }}{{ $made = append $made (include "angzarr.analysisRole" . | fromJson) }}{{ end -}}
{{- if .Values.dashboard.enabled }}{{ $made = append $made (include "angzarr.dashboardRole" . | fromJson) }}{{ end -}}
{{- if .Values.beat.enabled }}{{ $made = append $made (include "angzarr.beatRole" . | fromJson) }}{{ end -}}
{{ $made | toJson }}
{{- end }}
