# Runs a PostgreSQL server for as long as somebody holds the other end of standard input.
# Arguments: folder of the binaries, folder of the server. Says `ready` once it is.

# The reader of `ready` may be gone before it is said.
trap '' PIPE

binaries=$1
folder=$2
data=$folder/data

"$binaries/initdb" -D "$data" -A trust -U postgres -N --no-locale -E UTF8 >"$folder/install.log" 2>&1 &&
    cat "$folder/settings" >>"$data/postgresql.conf" && {
    # A child of ours and not of pg_ctl, so that it can be waited for.
    "$binaries/postgres" -D "$data" >"$folder/server.log" 2>&1 &
    server=$!
    # The server writes this line when it lets clients in.
    until grep -qs '^ready' "$data/postmaster.pid"; do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    grep -qs '^ready' "$data/postmaster.pid" && echo ready
}
exec >&-

cat >/dev/null

if [ -n "${server-}" ]; then
    # Immediate shutdown: no checkpoint for data that nobody will read.
    kill -QUIT "$server" 2>/dev/null
    wait "$server"
fi
cd /
rm -rf "$folder"
