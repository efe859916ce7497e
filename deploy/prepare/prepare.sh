#!/bin/sh
# Prepares the stack before each start: gives each volume to the user of its image, makes a random password for Grafana
# once, and writes Alertmanager's configuration with the receivers that the environment switches on.
#
#   ALERT_WEBHOOK_URL      one or several, separated by spaces
#   ALERT_SLACK_URL        with ALERT_SLACK_CHANNEL where the webhook's own channel is not meant
#   ALERT_EMAIL_TO         with ALERT_EMAIL_FROM, ALERT_EMAIL_SMARTHOST (host:port), and, where the server asks for
#                          them, ALERT_EMAIL_USERNAME and ALERT_EMAIL_PASSWORD
#   GRAFANA_PASSWORD       of the user admin, in place of the random one
#
# DATA, SECRETS and CONFIGURATION say where volumes and files are; tests set them.
set -eu
umask 077
data=${DATA:-/data}
secrets=${SECRETS:-/secrets}
configuration=${CONFIGURATION:-/etc/otel-train/alertmanager}
# Where it writes is where Alertmanager finds it: both containers have the volume at the same place.
made=$secrets/alertmanager

fail() {
    echo "prepare: $*" >&2
    exit 1
}

# Only root can give files away; others keep what they make.
own() { [ "$(id -u)" -ne 0 ] || chown -R "$@"; }

# A text as YAML: within single quotes, which stand doubled.
quoted() {
    printf "'%s'" "$(printf '%s' "$1" | sed "s/'/''/g")"
}

give_volumes() {
    while read -r name user; do
        [ ! -d "$data/$name" ] || own "$user" "$data/$name"
    done <<USERS
collector 10001:10001
prometheus 65534:65534
loki 10001:10001
tempo 10001:10001
grafana 472:0
alertmanager 65534:65534
USERS
}

make_grafana_password() {
    mkdir -p "$secrets/grafana"
    if [ -n "${GRAFANA_PASSWORD:-}" ]; then
        printf '%s' "$GRAFANA_PASSWORD" >"$secrets/grafana/password"
    elif [ ! -s "$secrets/grafana/password" ]; then
        head -c 18 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$secrets/grafana/password"
    fi
}

webhooks() {
    [ -n "${ALERT_WEBHOOK_URL:-}" ] || return 0
    echo "    webhook_configs:"
    number=0
    set -f # a URL may hold a question mark
    for url in $ALERT_WEBHOOK_URL; do
        number=$((number + 1))
        printf '%s' "$url" >"$made/webhook_$number"
        echo "      - url_file: $made/webhook_$number"
    done
    set +f
}

slack() {
    [ -n "${ALERT_SLACK_URL:-}" ] || return 0
    printf '%s' "$ALERT_SLACK_URL" >"$made/slack"
    cat <<SLACK
    slack_configs:
      - api_url_file: $made/slack
        send_resolved: true
        title: '{{ template "otel-train.title" . }}'
        title_link: '{{ (index .Alerts 0).Annotations.dashboard }}'
        text: '{{ template "otel-train.slack.text" . }}'
SLACK
    [ -z "${ALERT_SLACK_CHANNEL:-}" ] || echo "        channel: $(quoted "$ALERT_SLACK_CHANNEL")"
}

email() {
    [ -n "${ALERT_EMAIL_TO:-}" ] || return 0
    [ -n "${ALERT_EMAIL_SMARTHOST:-}" ] || fail "ALERT_EMAIL_TO is set: set ALERT_EMAIL_SMARTHOST too (host:port)"
    cat <<EMAIL
    email_configs:
      - to: $(quoted "$ALERT_EMAIL_TO")
        from: $(quoted "${ALERT_EMAIL_FROM:-$ALERT_EMAIL_TO}")
        smarthost: $(quoted "$ALERT_EMAIL_SMARTHOST")
        send_resolved: true
        headers: { Subject: '{{ template "otel-train.title" . }}' }
        html: '{{ template "otel-train.email.html" . }}'
EMAIL
    [ -n "${ALERT_EMAIL_USERNAME:-}" ] || return 0
    printf '%s' "${ALERT_EMAIL_PASSWORD:-}" >"$made/email_password"
    echo "        auth_username: $(quoted "$ALERT_EMAIL_USERNAME")"
    echo "        auth_password_file: $made/email_password"
}

configure_alertmanager() {
    rm -rf "$made" # what is not set any more must not stay
    mkdir -p "$made"
    cp "$configuration/alertmanager.yml" "$made/alertmanager.yml.new"
    {
        webhooks
        slack
        email
    } >>"$made/alertmanager.yml.new"
    mv "$made/alertmanager.yml.new" "$made/alertmanager.yml"
}

for setting in "${ALERT_SLACK_CHANNEL:-}" "${ALERT_EMAIL_TO:-}" "${ALERT_EMAIL_FROM:-}" "${ALERT_EMAIL_SMARTHOST:-}" \
    "${ALERT_EMAIL_USERNAME:-}"; do
    case $setting in *"
"*) fail "a setting of the alerts has more than one line: $setting" ;; esac
done

give_volumes
make_grafana_password
configure_alertmanager
# Each folder of secrets belongs to the one who reads it; the folder around them is passed through.
own 472:0 "$secrets/grafana"
own 65534:65534 "$secrets/alertmanager"
chmod 755 "$secrets"
