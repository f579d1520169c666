{{/* What KEDA measures, and how it gets in. */}}

{{- define "angzarr.kafkaServers" -}}
{{ default (dig "dlq" "kafka_brokers" "" .Values.config) .Values.keda.kafka.bootstrapServers }}
{{- end }}

{{/* What Celery calls a queue on SQS. */}}
{{- define "angzarr.sqsName" -}}
{{- $fifo := hasSuffix ".fifo" . -}}
{{ regexReplaceAll "[^A-Za-z0-9_.-]" (trimSuffix ".fifo" .) "_" | replace "." "-" }}{{ ternary ".fifo" "" $fifo }}
{{- end }}

{{/* The triggers of a role without their authentication, as JSON. Messages of all of them add up:
KEDA by itself would scale by the longest queue alone, so a formula stands above them. */}}
{{- define "angzarr.triggers" -}}
{{- $root := .root -}}
{{- $scaling := .role.values.autoscaling -}}
{{- $each := $scaling.messagesPerReplica | int64 | toString -}}
{{- $analysis := eq .role.component "dlq-analysis" -}}
{{- $source := ternary $scaling.source $root.Values.broker.type $analysis -}}
{{- $queues := .role.values.queues -}}
{{- if $analysis -}}
{{- $queues = list -}}
{{- range $scaling.domains }}{{ $queues = append $queues (printf "angzarr-dlq-%s" (replace "." "-" .)) }}{{ end -}}
{{- end -}}
{{- $made := list -}}
{{- range $number, $queue := $queues -}}
{{- if eq $source "redis" -}}
{{- $redis := $root.Values.keda.redis -}}
{{- range $step := $redis.prioritySteps -}}
{{- /* A priority has a list of its own, as in the transport: the name, \x06\x16, the step. */ -}}
{{- $list := printf "%s%s%s" $redis.globalKeyPrefix $queue (ternary "" (printf "\x06\x16%v" $step) (eq ($step | int) 0)) -}}
{{- $metadata := dict "listName" $list "listLength" $each "databaseIndex" (toString $redis.databaseIndex) "enableTLS" (toString $redis.tls) -}}
{{- if $redis.sentinelMaster -}}
{{- $_ := set $metadata "addresses" $redis.address -}}
{{- $_ := set $metadata "sentinelMaster" $redis.sentinelMaster -}}
{{- else -}}
{{- $_ := set $metadata "address" $redis.address -}}
{{- end -}}
{{- $made = append $made (dict "type" (ternary "redis-sentinel" "redis" (not (empty $redis.sentinelMaster))) "name" (printf "q%d_%v" $number $step) "metadata" $metadata) -}}
{{- end -}}
{{- else if eq $source "rabbitmq" -}}
{{- $metadata := dict "protocol" "amqp" "queueName" $queue "mode" "QueueLength" "value" $each -}}
{{- if ne (include "angzarr.login" $) "letters" }}{{ with $root.Values.keda.rabbitmq.vhostName }}{{ $_ := set $metadata "vhostName" . }}{{ end }}{{ end -}}
{{- $made = append $made (dict "type" "rabbitmq" "name" (printf "q%d" $number) "metadata" $metadata) -}}
{{- else if eq $source "sqs" -}}
{{- $sqs := $root.Values.keda.sqs -}}
{{- $name := include "angzarr.sqsName" (printf "%s%s" (ternary "" $sqs.queueNamePrefix $analysis) $queue) -}}
{{- $metadata := dict "queueURL" (printf "%s/%s" (trimSuffix "/" $sqs.queueURLPrefix) $name) "queueLength" $each "awsRegion" $sqs.region "scaleOnInFlight" "true" -}}
{{- $made = append $made (dict "type" "aws-sqs-queue" "name" (printf "q%d" $number) "metadata" $metadata) -}}
{{- else -}}
{{- $kafka := $root.Values.keda.kafka -}}
{{- $group := dig "dlq" "kafka_group" "angzarr-dlq-analysis" $root.Values.config -}}
{{- $metadata := dict "bootstrapServers" (include "angzarr.kafkaServers" $root) "consumerGroup" $group "topic" $queue "lagThreshold" $each "offsetResetPolicy" "earliest" "sasl" $kafka.sasl "tls" (ternary "enable" "disable" $kafka.tls) -}}
{{- $made = append $made (dict "type" "kafka" "name" (printf "q%d" $number) "metadata" $metadata) -}}
{{- end -}}
{{- end -}}
{{ $made | toJson }}
{{- end }}

{{/* Which TriggerAuthentication a role needs: one for each source, and one for letters on a RabbitMQ
that need not be the broker: (dict "root" … "role" …). */}}
{{- define "angzarr.login" -}}
{{- $given := .root.Values -}}
{{- if ne .role.component "dlq-analysis" -}}
{{ $given.broker.type }}
{{- else if ne .role.values.autoscaling.source "rabbitmq" -}}
{{ .role.values.autoscaling.source }}
{{- else if and $given.keda.rabbitmq.hostSecret (ne $given.broker.type "rabbitmq") -}}
rabbitmq
{{- else if or $given.secretEnv.ANGZARR_DLQ__AMQP_URL (dig "dlq" "amqp_url" "" $given.config) (ne $given.broker.type "rabbitmq") -}}
letters
{{- else -}}
rabbitmq
{{- end -}}
{{- end }}

{{/* The spec of a TriggerAuthentication, or nothing: (dict "root" … "login" …). */}}
{{- define "angzarr.authentication" -}}
{{- $keda := .root.Values.keda -}}
{{- $refs := list -}}
{{- if eq .login "redis" -}}
{{- range $parameter, $ref := dict "username" $keda.redis.usernameSecret "password" $keda.redis.passwordSecret -}}
{{- if $ref }}{{ $refs = append $refs (merge (dict "parameter" $parameter) $ref) }}{{ end -}}
{{- end -}}
{{- else if has .login (list "rabbitmq" "letters") -}}
{{- $ref := default .root.Values.secretEnv.CELERY_BROKER_URL $keda.rabbitmq.hostSecret -}}
{{- if eq .login "letters" }}{{ $ref = .root.Values.secretEnv.ANGZARR_DLQ__AMQP_URL }}{{ end -}}
{{- with $ref }}{{ $refs = append $refs (dict "parameter" "host" "name" .name "key" .key) }}{{ end -}}
{{- else if eq .login "kafka" -}}
{{- range $parameter, $ref := dict "username" $keda.kafka.usernameSecret "password" $keda.kafka.passwordSecret "ca" $keda.kafka.caSecret -}}
{{- if $ref }}{{ $refs = append $refs (merge (dict "parameter" $parameter) $ref) }}{{ end -}}
{{- end -}}
{{- else if eq .login "sqs" -}}
podIdentity:
  provider: aws
  identityOwner: {{ $keda.sqs.identityOwner }}
{{- end -}}
{{- with $refs -}}
secretTargetRef:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}
