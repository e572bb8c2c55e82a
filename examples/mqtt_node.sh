#!/usr/bin/env bash
# A node by the published wire alone, on mosquitto's clients: no Canoa in it.
# Usage: mqtt_node.sh NODE_ID [-h HOST -p PORT -u USER -P PASSWORD]...
set -eu
node=${1:?give the node an id}
shift
broker=("$@")

say() { # until the broker has it: it may be away for a moment
    until mosquitto_pub "${broker[@]}" -q 1 -t "$1" -m "$2"; do sleep 1; done
}

register() {
    say sapparchi.nodes.register "{\"nodeId\":\"$node\",\"endpoint\":\"$node\",\"layer\":\"EDGE\",\"type\":\"shell\",\
\"actions\":[\"urn:sapparchi:Action:shell.double\"],\"forceRegister\":$1}"
}

answer() { # messageData is JSON inside JSON: the first number after "number" is all there is to find
    id=$(sed 's/.*"requestID" *: *"\([^"]*\)".*/\1/' <<<"$1")
    number=$(sed 's/.*number[^0-9-]*\(-\{0,1\}[0-9]*\).*/\1/' <<<"$1")
    say sapparchi.task.handler.saida "{\"actionTo\":\"urn:sapparchi:Action:shell.double\",\"requestID\":\"$id\",\
\"messageData\":\"{\\\"doubled\\\":$((2 * number))}\"}"
}

trap 'kill 0' EXIT # with all it started

# A session of its own (-i, -c): what comes while the node is away waits for it. Again, should the broker not be there.
listen() {
    until mosquitto_sub "${broker[@]}" -i "$node" -c -q 1 -F '%t %p' \
        -t "sapparchi/node/$node/in" -t sapparchi/manager/available -t sapparchi.manager.available; do sleep 1; done
}

listen |
    while read -r topic body; do
        case $topic in
        *in) answer "$body" ;;
        *available) [[ $body == *'"forceRegister":true'* ]] && register true || true ;;
        esac
    done &
sleep 1 # until it listens
register false
wait
