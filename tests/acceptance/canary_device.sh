#!/usr/bin/env bash
# A device on mosquitto's clients that offers canaries, by MQTT 5. It answers none while FOLDER has a file `deaf`, and
# registers all the same. Usage: canary_device.sh NODE_ID FOLDER [-h HOST -p PORT]...
set -eu
node=$1 folder=$2
shift 2
broker=(-V 5 "$@")

register() {
    mosquitto_pub "${broker[@]}" -q 1 -t sapparchi/nodes/register -D publish user-property canoa-canary true -m \
        "{\"nodeId\":\"$node\",\"endpoint\":\"$node\",\"layer\":\"EDGE\",\"type\":\"shell\",\
\"actions\":[\"urn:sapparchi:Action:shell.double\"],\"forceRegister\":$1}"
}

trap 'kill 0' EXIT # with all it started

mosquitto_sub "${broker[@]}" -i "$node" -q 1 -F '%t %p' -t "sapparchi/node/$node/in" -t sapparchi/manager/available |
    while read -r topic body; do
        case $topic in
        *in) [ -e "$folder/deaf" ] || mosquitto_pub "${broker[@]}" -q 1 -t sapparchi/task/handler/saida -m "$body" ;;
        *available) [[ $body == *'"forceRegister":true'* ]] && register true || true ;;
        esac
    done &
sleep 1 # until it listens
register false
wait
