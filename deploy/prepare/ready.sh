#!/bin/sh
# Does nothing but stay: the health check of this container asks the parts that have no program to ask themselves with.
trap 'exit 0' TERM INT
while :; do
    sleep 3600 &
    wait $!
done
