#!/bin/sh
# Starts the stack and checks it as a whole: every part answers, and one metric point, one log record and one span that
# are sent to the Collector are found again in their stores. Needs docker compose and curl. Stops nothing, deletes nothing.
#
#   deploy/check-stack.sh            start, then check
#   deploy/check-stack.sh --no-start check what is running
set -u
cd "$(dirname "$0")/.." || exit 2

# As compose reads it: from the environment, else from .env, which is no script: its values may hold blanks and dollars.
setting() {
    found=$(printenv "$1") || found=$(sed -n "s/^$1=//p" .env 2>/dev/null | tail -n 1)
    found=${found#[\"\']} found=${found%[\"\']}
    printf '%s' "${found:-$2}"
}

host=$(setting BIND_ADDRESS 127.0.0.1)
[ "$host" != 0.0.0.0 ] || host=127.0.0.1
token=$(setting OTEL_TRAIN_TOKEN "")
scheme=http
[ -z "$(setting OTEL_TRAIN_TLS_CERT "")" ] || scheme=https
otlp=$scheme://$host:$(setting OTLP_HTTP_PORT 4318)
grafana=http://$host:$(setting GRAFANA_PORT 3000)
prometheus=http://$host:$(setting PROMETHEUS_PORT 9090)
loki=http://$host:$(setting LOKI_PORT 3100)
tempo=http://$host:$(setting TEMPO_PORT 3200)
alertmanager=http://$host:$(setting ALERTMANAGER_PORT 9093)
# Where the Collector asks for one. Absolute paths.
certificate=${OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE:-}
key=${OTEL_EXPORTER_OTLP_CLIENT_KEY:-$certificate}
failures=0

say() { printf '%-14s %s\n' "$1" "$2"; }

# Asks until the answer holds a text: name, text, seconds, then the arguments for curl.
expect() {
    name=$1 text=$2 left=$3
    shift 3
    while :; do
        answer=$(curl -s -m 5 "$@" 2>&1)
        case $answer in *"$text"*) say "$name" "ok"; return 0 ;; esac
        left=$((left - 1))
        [ "$left" -gt 0 ] || break
        sleep 1
    done
    say "$name" "FAILED: no '$text' in the answer of $*"
    say "" "$(printf '%s' "$answer" | head -c 300)"
    failures=$((failures + 1))
}

send() {
    # The certificate is one for the name that others use: here only the way is checked.
    code=$(curl -s -k -m 10 -o /dev/null -w '%{http_code}' ${token:+-H "Authorization: Bearer $token"} \
        ${certificate:+--cert "$certificate" --key "$key"} \
        -H 'Content-Type: application/json' -d "$2" "$otlp/v1/$1")
    [ "$code" = 200 ] && say "send $1" "ok" && return 0
    say "send $1" "FAILED: the Collector answered $code"
    failures=$((failures + 1))
    return 1
}

if [ "${1:-}" != --no-start ]; then
    docker compose up -d --wait || { echo "docker compose up did not reach healthy" >&2; exit 1; }
fi

expect prometheus Ready 30 "$prometheus/-/ready"
expect loki ready 60 "$loki/ready"
expect tempo ready 60 "$tempo/ready"
expect alertmanager OK 30 "$alertmanager/-/ready"
expect grafana '"database": "ok"' 30 "$grafana/api/health"

run=stack-check-$(date -u +%Y%m%d-%H%M%S)
now=$(date +%s)000000000
id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
span=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
resource='"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"stack-check"}},{"key":"run_id","value":{"stringValue":"'$run'"}}]}'
send metrics '{"resourceMetrics":[{'$resource',"scopeMetrics":[{"metrics":[{"name":"stack.check","gauge":{"dataPoints":[{"timeUnixNano":"'$now'","asDouble":42}]}}]}]}]}'
metrics=$?
send logs '{"resourceLogs":[{'$resource',"scopeLogs":[{"logRecords":[{"timeUnixNano":"'$now'","severityNumber":9,"body":{"stringValue":"stack check"},"traceId":"'$id'","spanId":"'$span'"}]}]}]}'
logs=$?
send traces '{"resourceSpans":[{'$resource',"scopeSpans":[{"spans":[{"traceId":"'$id'","spanId":"'$span'","name":"stack check","kind":1,"startTimeUnixNano":"'$now'","endTimeUnixNano":"'$now'"}]}]}]}'
traces=$?

[ "$metrics" -ne 0 ] || expect 'metric found' '"42"' 30 -G "$prometheus/api/v1/query" --data-urlencode "query=stack_check{run_id=\"$run\"}"
[ "$logs" -ne 0 ] || expect 'record found' 'stack check' 60 -G "$loki/loki/api/v1/query_range" --data-urlencode "query={service_name=\"stack-check\"} | run_id=\"$run\""
[ "$traces" -ne 0 ] || expect 'span found' '"traceID"' 60 "$tempo/api/search?q=%7B%20resource.run_id%20%3D%20%22$run%22%20%7D"

if [ "$failures" -gt 0 ]; then
    echo "$failures checks failed; docker compose ps and docker compose logs say more" >&2
    exit 1
fi
echo "the stack is well"
