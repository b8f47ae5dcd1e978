# Stops a PostgreSQL server at once, and starts it again on the same folder: for each line of
# standard input. Stops the one that it has started when standard input ends.
# Arguments: folder of the binaries, folder of the server. Says `ready` once it is.

binaries=$1
folder=$2
data=$folder/data
server=

stop() {
    kill -QUIT "$(head -n 1 "$data/postmaster.pid")"
    # The first server is nobody's child here, but its lock file goes when it does.
    while [ -e "$data/postmaster.pid" ]; do sleep 0.02; done
    if [ -n "$server" ]; then wait "$server"; fi
}

while read -r _; do
    stop
    "$binaries/postgres" -D "$data" >>"$folder/server.log" 2>&1 &
    server=$!
    until grep -qs '^ready' "$data/postmaster.pid"; do
        kill -0 "$server" 2>/dev/null || exit 1
        sleep 0.02
    done
    echo ready
done
if [ -n "$server" ]; then stop; fi
