#!/bin/sh
# Bounds the archive of runs, once an hour: deletes each run in which no file has changed for ARCHIVE_DAYS days, then,
# while all together are larger than ARCHIVE_MAX_GB, the one that was written to longest ago. What was written to within
# the last day stays: such a run may go on.
set -u
archive=${ARCHIVE_DIR:-/var/lib/otelcol/archive}
days=${ARCHIVE_DAYS:-400}
most_gb=${ARCHIVE_MAX_GB:-100}
for setting in "ARCHIVE_DAYS=$days" "ARCHIVE_MAX_GB=$most_gb"; do
    case ${setting#*=} in
    '' | *[!0-9]*) echo "${setting%%=*} is '${setting#*=}'; it must be a whole number" >&2; exit 2 ;;
    esac
done

# The time of the last write to a run, in seconds.
last_write() { find "$1" -type f -exec stat -c %Y {} + | sort -n | tail -n 1; }

size_kb() { du -sk "$archive" 2>/dev/null | cut -f1; }

delete() { rm -rf "$1" && echo "deleted the archived run $(basename "$1"): $2"; }

keep_archive() {
    now=$(date +%s)
    runs=$(for run in "$archive"/*/; do [ ! -d "$run" ] || echo "$(last_write "$run") $run"; done | sort -n)
    echo "$runs" | while read -r written run; do
        [ -n "$run" ] || continue
        age=$((now - written))
        if [ "$age" -ge $((days * 86400)) ]; then
            delete "$run" "nothing written for $days days"
        elif [ "$age" -ge 86400 ] && [ "$(size_kb)" -gt $((most_gb * 1000000)) ]; then
            delete "$run" "the archive is over $most_gb GB, and nothing was written longer"
        fi
    done
}

trap 'exit 0' TERM INT
while :; do
    keep_archive
    [ "${ONCE:-}" = "" ] || exit 0
    # In the background, so that the trap acts at once.
    sleep 3600 &
    wait $!
done
