{{/* What a schema cannot say: each mistake ends the rendering with one sentence that says what to do. */}}

{{- define "angzarr.check" -}}
{{- include "angzarr.checkApp" . -}}
{{- include "angzarr.checkSecrets" . -}}
{{- include "angzarr.checkEnv" . -}}
{{- range $key := list "pools" "poolDefaults" "defaults" "analysis" "dashboard" "beat" "keda" -}}
{{- include "angzarr.checkPlain" (dict "value" (get $.Values $key) "path" $key) -}}
{{- end -}}
{{- include "angzarr.checkPools" . -}}
{{- range include "angzarr.roles" . | fromJsonArray -}}
{{- include "angzarr.checkGrace" (dict "root" $ "role" .) -}}
{{- include "angzarr.checkScaling" (dict "root" $ "role" .) -}}
{{- end -}}
{{- include "angzarr.checkPods" . -}}
{{- include "angzarr.checkAnalysis" . -}}
{{- include "angzarr.checkDashboard" . -}}
{{- include "angzarr.checkMigrations" . -}}
{{- include "angzarr.checkSpool" . -}}
{{- include "angzarr.checkOthers" . -}}
{{- end }}

{{- define "angzarr.checkApp" -}}
{{- if not .Values.app }}{{ fail "set app to your module, as for celery -A, e.g. app: orders" }}{{ end -}}
{{- with .Values.image -}}
{{- if not .repository }}{{ fail "set image.repository to your image, built FROM angzarr's with your module in /app" }}{{ end -}}
{{- if not (or .tag .digest) }}{{ fail "set image.tag to the version of your image" }}{{ end -}}
{{- if and (eq .tag "latest") (not $.Values.release) -}}
{{ fail "image.tag latest tells no release from the next: set a tag that names one, or release" }}
{{- end -}}
{{- if and .digest (not .tag) (not $.Values.release) -}}
{{ fail "image.digest alone does not name a release: set image.tag or release as well" }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Secrets in plain values. The value is never repeated. */}}
{{- define "angzarr.checkSecrets" -}}
{{- include "angzarr.checkPlain" (dict "value" .Values.config "path" "config") -}}
{{- range $variable, $from := .Values.secretEnv -}}
{{- if not (and $from.name $from.key) }}{{ fail (printf "secretEnv.%s must say the name of an existing Secret and its key: {name: …, key: …}" $variable) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkPlain" -}}
{{- $path := .path -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $here := printf "%s.%s" $path $key -}}
{{- if and $value (hasPrefix "config." $here) (or (regexMatch "(?i)(password|secret_access_key|session_token|session_key|sasl\\.jaas|private_key)" $key) (has $key (list "secrets" "signing_keys" "encryption_keys" "escalation_webhook_secrets"))) -}}
{{ fail (printf "%s is a secret, and values are stored in plain text: remove it, put it into a Secret and name that in secretEnv.%s" $here (include "angzarr.variable" $here)) }}
{{- end -}}
{{- include "angzarr.checkPlain" (dict "value" $value "path" $here) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $number, $value := .value }}{{ include "angzarr.checkPlain" (dict "value" $value "path" (printf "%s.%d" $path $number)) }}{{ end -}}
{{- else if kindIs "string" .value -}}
{{- if include "angzarr.hasPassword" .value -}}
{{- $where := ternary (printf "and name that in secretEnv.%s" (include "angzarr.variable" $path)) "that is read in its place" (hasPrefix "config." $path) -}}
{{ fail (printf "%s is an address with a password, and values are stored in plain text: remove it, put it into a Secret %s" $path $where) }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.hasPassword" -}}
{{- if regexMatch "://[^/?#\\s]*:[^/?#\\s]*@|[?&;](password|sslpassword)=" . }}yes{{ end -}}
{{- end }}

{{/* The variable of a setting: config.dlq.amqp_url → ANGZARR_DLQ__AMQP_URL, as far as it has one. */}}
{{- define "angzarr.variable" -}}
{{- $path := regexReplaceAll "^(dlq\\.(kafka_options|aws_options|signing_keys|encryption_keys)|analysis\\.alerts\\.webhooks|payloads\\.encryption_keys)\\..*" (trimPrefix "config." .) "$1" -}}
ANGZARR_{{ $path | replace "." "__" | upper }}
{{- end }}

{{- define "angzarr.checkEnv" -}}
{{- $given := .Values.extraEnv -}}
{{- range include "angzarr.roles" . | fromJsonArray }}{{ $given = concat $given .values.env }}{{ end -}}
{{- $own := list "ANGZARR_APP" "ANGZARR_CONFIG" "ANGZARR_RELEASE" "ANGZARR_HEALTH__HOST" "ANGZARR_HEALTH__PORT" "ANGZARR_SOFT_SHUTDOWN_TIMEOUT" -}}
{{- range $given -}}
{{- if not .name }}{{ fail "an environment variable in extraEnv or env has no name: {name: …, value: …}" }}{{ end -}}
{{- if has .name $own }}{{ fail (printf "%s is set by the chart: remove it from extraEnv or env, and use the value that says it" .name) }}{{ end -}}
{{- if hasKey $.Values.secretEnv .name }}{{ fail (printf "%s stands in secretEnv and in extraEnv or env: keep one of them" .name) }}{{ end -}}
{{- if and .value .valueFrom }}{{ fail (printf "%s has a value and a valueFrom in extraEnv or env: keep one of them" .name) }}{{ end -}}
{{- if and .value (not (regexMatch "_(FILE|PATH|DIR|NAME|ARN)$" .name)) -}}
{{- if or (include "angzarr.hasPassword" (toString .value)) (regexMatch "(?i)(PASSWORD|SECRET|SIGNING_KEYS|ENCRYPTION_KEYS|SESSION_KEY)" .name) -}}
{{ fail (printf "%s holds a secret, and values are stored in plain text: put it into a Secret and name that in secretEnv.%s" .name .name) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $own -}}
{{- if hasKey $.Values.secretEnv . }}{{ fail (printf "%s is set by the chart: remove it from secretEnv" .) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkPools" -}}
{{- if not (include "angzarr.roles" . | fromJsonArray) }}{{ fail "nothing would run: name a pool, or enable analysis, dashboard or beat" }}{{ end -}}
{{- $seen := dict -}}
{{- $alive := false -}}
{{- range include "angzarr.pools" . | fromJsonArray -}}
{{- $values := .values -}}
{{- if hasKey $seen .pool }}{{ fail (printf "two pools are called %q: give each a name of its own" .pool) }}{{ end -}}
{{- $_ := set $seen .pool true -}}
{{- include "angzarr.checkProcesses" . -}}
{{- if ne (len $values.queues) (len ($values.queues | uniq)) }}{{ fail (printf "%s names a queue twice: name each once" .what) }}{{ end -}}
{{- if or (and (eq $values.autoscaling.kind "none") (gt ($values.replicas | int) 0)) (and (ne $values.autoscaling.kind "none") (gt ($values.autoscaling.minReplicas | int) 0)) -}}
{{- $alive = true -}}
{{- end -}}
{{- end -}}
{{- if and .Values.pools (not $alive) -}}
{{ fail "no pool keeps a pod: workers send what is delayed or retried, so nothing would be; let one pool have minReplicas or replicas of 1 or more" }}
{{- end -}}
{{- end }}

{{/* What says how many processes and threads one pod of a pool has. */}}
{{- define "angzarr.checkProcesses" -}}
{{- $what := .what -}}
{{- with .values -}}
{{- if and .maxTasksPerChild (eq .pool "gevent") -}}
{{ fail (printf "%s: maxTasksPerChild is for processes, and a gevent pool never replaces its own: remove it" $what) }}
{{- end -}}
{{- if and (or .processes .autoscale) (has .pool (list "prefork" "gevent")) -}}
{{ fail (printf "%s: processes and autoscale are for angzarr worker, and pool %s runs celery worker: remove them, or pool" $what .pool) }}
{{- end -}}
{{- if and .threads .pool -}}
{{ fail (printf "%s: threads is for angzarr worker without pool: remove pool, or say concurrency in place of threads" $what) }}
{{- end -}}
{{- if and .coroutines (or .threads .pool) -}}
{{ fail (printf "%s: coroutines is for angzarr worker, and excludes threads and pool: remove them, or coroutines" $what) }}
{{- end -}}
{{- if .autoscale -}}
{{- if .processes }}{{ fail (printf "%s: processes and autoscale exclude each other: remove one of them" $what) }}{{ end -}}
{{- if lt (.autoscale.most | int64) (.autoscale.least | int64) -}}
{{ fail (printf "%s: autoscale.most %v is below least %v: raise it" $what .autoscale.most .autoscale.least) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkGrace" -}}
{{- $values := .role.values -}}
{{- $what := .role.what -}}
{{- $grace := $values.terminationGracePeriodSeconds | float64 -}}
{{- with .role.grace -}}
{{- $needed := addf ($values.preStopSleepSeconds | float64) (.seconds | float64) (.after | float64) -}}
{{- if ge $needed $grace -}}
{{ fail (printf "%s: preStopSleepSeconds %v + %s %v%s = %v s are not below terminationGracePeriodSeconds %v, so SIGKILL would come first: set terminationGracePeriodSeconds to %d or more" $what $values.preStopSleepSeconds .name .seconds (ternary (printf " + %v" .after) "" (gt (.after | float64) 0.0)) $needed $values.terminationGracePeriodSeconds (add1 (floor $needed | int))) }}
{{- end -}}
{{- else -}}
{{- if ge ($values.preStopSleepSeconds | float64) $grace -}}
{{ fail (printf "%s: preStopSleepSeconds %v is not below terminationGracePeriodSeconds %v: lower it" $what $values.preStopSleepSeconds $values.terminationGracePeriodSeconds) }}
{{- end -}}
{{- end -}}
{{- if eq .role.component "worker" -}}
{{- $visible := $values.visibilityTimeoutSeconds -}}
{{- if and (not $visible) (eq .root.Values.broker.type "sqs") }}{{ $visible = 1800 }}{{ end -}}
{{- if $visible -}}
{{- if le ($visible | float64) $grace -}}
{{ fail (printf "%s: terminationGracePeriodSeconds %v is not below the visibility time-out of %v s, after which the broker gives a message to a second worker while the first may still run it: raise visibility_timeout in your app's broker_transport_options and visibilityTimeoutSeconds here, or lower terminationGracePeriodSeconds" $what $values.terminationGracePeriodSeconds $visible) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .role.kind "Deployment") (ne .role.component "beat") (eq (toString $values.maxUnavailable | trimSuffix "%") "0") (eq (toString $values.maxSurge | trimSuffix "%") "0") -}}
{{ fail (printf "%s: with maxUnavailable 0 and maxSurge 0 no pod could ever be replaced: raise one of them" $what) }}
{{- end -}}
{{- end }}

{{- define "angzarr.checkScaling" -}}
{{- $what := .role.what -}}
{{- $values := .role.values -}}
{{- $scaling := $values.autoscaling -}}
{{- if and (has .role.component (list "worker" "dlq-analysis")) (ne $scaling.kind "none") -}}
{{- if lt ($scaling.maxReplicas | int) ($scaling.minReplicas | int) -}}
{{ fail (printf "%s: autoscaling.maxReplicas %v is below minReplicas %v: raise it" $what $scaling.maxReplicas $scaling.minReplicas) }}
{{- end -}}
{{- if eq $scaling.kind "hpa" -}}
{{- if lt ($scaling.minReplicas | int) 1 }}{{ fail (printf "%s: hpa keeps at least one pod: set autoscaling.minReplicas to 1 or more, or kind to keda" $what) }}{{ end -}}
{{- if not (or $scaling.targetCPU $scaling.targetMemory) }}{{ fail (printf "%s: hpa needs autoscaling.targetCPU or targetMemory" $what) }}{{ end -}}
{{- $requests := dig "requests" dict $values.resources -}}
{{- if and $scaling.targetCPU (not $requests.cpu) }}{{ fail (printf "%s: autoscaling.targetCPU is a share of resources.requests.cpu, which is missing: set it" $what) }}{{ end -}}
{{- if and $scaling.targetMemory (not $requests.memory) }}{{ fail (printf "%s: autoscaling.targetMemory is a share of resources.requests.memory, which is missing: set it" $what) }}{{ end -}}
{{- else -}}
{{- include "angzarr.checkKeda" . -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkKeda" -}}
{{- $what := .role.what -}}
{{- $scaling := .role.values.autoscaling -}}
{{- $source := .root.Values.broker.type -}}
{{- if eq .role.component "dlq-analysis" -}}
{{- $source = $scaling.source -}}
{{- if not $source }}{{ fail "analysis.autoscaling: say where letters wait: source: kafka, rabbitmq or sqs" }}{{ end -}}
{{- if not $scaling.domains }}{{ fail "analysis.autoscaling: name the domains whose queues are looked at: domains: [order]" }}{{ end -}}
{{- end -}}
{{- range $kind, $login := .root.Values.keda -}}
{{- range $key, $ref := $login -}}
{{- if and (hasSuffix "Secret" $key) $ref (not (and $ref.name $ref.key)) -}}
{{ fail (printf "keda.%s.%s must say the name of an existing Secret and its key: {name: …, key: …}" $kind $key) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .root.Values -}}
{{- if and (eq $source "redis") (not .keda.redis.address) -}}
{{ fail (printf "%s: KEDA cannot read Redis addresses out of a Secret: set keda.redis.address to host:port" $what) }}
{{- end -}}
{{- if and (eq $source "rabbitmq") (not (include "angzarr.authentication" (dict "root" $.root "login" (include "angzarr.login" $)))) -}}
{{- $variable := ternary "ANGZARR_DLQ__AMQP_URL" "CELERY_BROKER_URL" (eq $.role.component "dlq-analysis") -}}
{{- $or := ternary "" " or keda.rabbitmq.hostSecret" (and (eq (include "angzarr.login" $) "letters") (eq .broker.type "rabbitmq")) -}}
{{ fail (printf "%s: KEDA needs the address of RabbitMQ: set secretEnv.%s%s" $what $variable $or) }}
{{- end -}}
{{- if and (eq $source "sqs") (not (and .keda.sqs.queueURLPrefix .keda.sqs.region)) -}}
{{ fail (printf "%s: KEDA needs to know the queues: set keda.sqs.queueURLPrefix (https://sqs.REGION.amazonaws.com/ACCOUNT) and keda.sqs.region" $what) }}
{{- end -}}
{{- if and (eq $source "kafka") (not (include "angzarr.kafkaServers" $.root)) -}}
{{ fail (printf "%s: KEDA needs the brokers: set config.dlq.kafka_brokers or keda.kafka.bootstrapServers" $what) }}
{{- end -}}
{{- end -}}
{{- $names := list "queued" -}}
{{- range $scaling.extraTriggers -}}
{{- if not (has .type (list "cpu" "memory")) -}}
{{- if not .name }}{{ fail (printf "%s: a %s trigger in autoscaling.extraTriggers needs a name, by which autoscaling.formula says how it counts" $what .type) }}{{ end -}}
{{- if not (regexMatch "^[A-Za-z][A-Za-z0-9_]*$" .name) -}}
{{ fail (printf "%s: the trigger %q cannot stand in autoscaling.formula: name it with letters, digits and _ alone" $what .name) }}
{{- end -}}
{{- if or (has .name $names) (regexMatch "^q[0-9]+(_[0-9]+)?$" .name) }}{{ fail (printf "%s: another trigger is called %s already: give each a name of its own" $what .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- if not (regexMatch (printf "\\b%s\\b" .name) $scaling.formula) -}}
{{ fail (printf "%s: the trigger %s counts for nothing: say how in autoscaling.formula, e.g. max(queued, %s * %v)" $what .name .name $scaling.messagesPerReplica) }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkAnalysis" -}}
{{- if .Values.analysis.enabled -}}
{{- if not (include "angzarr.says" (dict "root" . "path" (list "ledger") "variable" "ANGZARR_LEDGER")) -}}
{{ fail "the analysis worker needs a ledger: put its address into a Secret and name that in secretEnv.ANGZARR_LEDGER, or set analysis.enabled: false" }}
{{- end -}}
{{- if and (ne .Values.broker.type "redis") (not (include "angzarr.says" (dict "root" . "path" (list "store") "variable" "ANGZARR_STORE"))) -}}
{{ fail (printf "a %s broker keeps no claims: put the address of a Redis or PostgreSQL into a Secret and name that in secretEnv.ANGZARR_STORE" .Values.broker.type) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Whether a setting is given: in config, in a Secret, or in the environment. */}}
{{- define "angzarr.says" -}}
{{- $found := .root.Values.config -}}
{{- range .path }}{{ if kindIs "map" $found }}{{ $found = get $found . }}{{ else }}{{ $found = "" }}{{ end }}{{ end -}}
{{- if or $found (hasKey .root.Values.secretEnv .variable) .root.Values.secretEnvFrom }}yes{{ end -}}
{{- $variable := .variable -}}
{{- range .root.Values.extraEnv }}{{ if eq .name $variable }}yes{{ end }}{{ end -}}
{{- end }}

{{- define "angzarr.checkDashboard" -}}
{{- with .Values.dashboard -}}
{{- if .enabled -}}
{{- if not (include "angzarr.says" (dict "root" $ "path" (list "dashboard" "tokens") "variable" "ANGZARR_DASHBOARD__TOKENS")) -}}
{{ fail "the dashboard needs a token: make one with `angzarr dashboard token NAME --role operator` and put its line under config.dashboard.tokens" }}
{{- end -}}
{{- if not (or (include "angzarr.dashboardHosts" $ | fromJsonArray) (include "angzarr.says" (dict "root" $ "path" (list "dashboard" "hosts") "variable" "ANGZARR_DASHBOARD__HOSTS"))) -}}
{{ fail "the dashboard must know by which names people reach it: set dashboard.hosts, or dashboard.ingress.hosts" }}
{{- end -}}
{{- if and (gt (.replicas | int) 1) (not (include "angzarr.says" (dict "root" $ "path" (list "none") "variable" "ANGZARR_DASHBOARD__SESSION_KEY"))) -}}
{{ fail "several dashboards know each other's sessions by one key only: put one of 32 characters or more into a Secret and name that in secretEnv.ANGZARR_DASHBOARD__SESSION_KEY, or set dashboard.replicas: 1" }}
{{- end -}}
{{- if and .ingress.enabled (not .ingress.hosts) }}{{ fail "dashboard.ingress.enabled needs dashboard.ingress.hosts: the names by which people reach it" }}{{ end -}}
{{- else if .ingress.enabled }}{{ fail "dashboard.ingress.enabled without a dashboard leads nowhere: set dashboard.enabled: true" }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "angzarr.checkMigrations" -}}
{{- $root := . -}}
{{- if .Values.migrations.enabled -}}
{{- $found := "" -}}
{{- range list (list "ledger" "ANGZARR_LEDGER") (list "books" "ANGZARR_BOOKS") -}}
{{- $found = cat $found (include "angzarr.says" (dict "root" $root "path" (list (index . 0)) "variable" (index . 1))) -}}
{{- end -}}
{{- $found = cat $found (include "angzarr.says" (dict "root" $root "path" (list "ordering" "url") "variable" "ANGZARR_ORDERING__URL")) -}}
{{- $found = cat $found (include "angzarr.says" (dict "root" $root "path" (list "configuration" "url") "variable" "ANGZARR_CONFIGURATION__URL")) -}}
{{- if not (trim $found) -}}
{{ fail "migrations need a database: name its Secret in secretEnv.ANGZARR_LEDGER, ANGZARR_BOOKS or ANGZARR_ORDERING__URL, or set migrations.enabled: false" }}
{{- end -}}
{{- else if .Values.migrations.exclusive }}{{ fail "migrations.exclusive forbids the processes to upgrade tables, and migrations.enabled: false nobody else does: change one of them" }}
{{- end -}}
{{- end }}

{{- define "angzarr.checkSpool" -}}
{{- $targets := dig "dlq" "targets" list .Values.config -}}
{{- $elsewhere := or (hasKey .Values.secretEnv "ANGZARR_DLQ__TARGETS") .Values.secretEnvFrom -}}
{{- range .Values.extraEnv }}{{ if eq .name "ANGZARR_DLQ__TARGETS" }}{{ $elsewhere = true }}{{ end }}{{ end -}}
{{- if .Values.spool.enabled -}}
{{- if and (not $elsewhere) (ne (last $targets | default "") "spool") -}}
{{ fail "spool.enabled makes volumes that nothing is written to: set config.dlq.targets to your queue and spool, e.g. [kafka, spool]" }}
{{- end -}}
{{- if dig "dlq" "spool" dict .Values.config }}{{ fail "config.dlq.spool is said by spool.path and spool.maxBytes: remove it" }}{{ end -}}
{{- $size := include "angzarr.quantity" .Values.spool.size | float64 -}}
{{- if ge (.Values.spool.maxBytes | float64) $size -}}
{{ fail (printf "spool.maxBytes %.0f does not fit into spool.size %v: raise the size, or lower maxBytes" (.Values.spool.maxBytes | float64) .Values.spool.size) }}
{{- end -}}
{{- else if has "spool" $targets -}}
{{ fail "config.dlq.targets has a spool, and pods have no disk that outlives them: set spool.enabled: true" }}
{{- end -}}
{{- end }}

{{- define "angzarr.checkOthers" -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{ fail "serviceAccount.create: false needs serviceAccount.name: the one that exists" }}
{{- end -}}
{{- if and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.egress.rules) -}}
{{ fail "networkPolicy.egress without rules lets no worker reach its broker: name broker, stores and what handlers call in networkPolicy.egress.rules" }}
{{- end -}}
{{- if and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.enabled) -}}
{{ fail "networkPolicy.egress.enabled needs networkPolicy.enabled: true" }}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled .Values.monitoring.serviceMonitor.enabled -}}
{{ fail "monitoring.podMonitor and monitoring.serviceMonitor would each collect everything: enable one of them" }}
{{- end -}}
{{- end }}
