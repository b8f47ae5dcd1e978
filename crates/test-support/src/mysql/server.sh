# Runs a MariaDB server for as long as somebody holds the other end of standard input.
# Arguments: the installing program, the server, folder of the server. Says `ready` once it is.

# The reader of `ready` may be gone before it is said.
trap '' PIPE

install=$1
mariadbd=$2
folder=$3

"$install" --no-defaults --datadir="$folder/data" --auth-root-authentication-method=normal \
    --skip-test-db --skip-name-resolve >"$folder/install.log" 2>&1 && {
    "$mariadbd" --defaults-file="$folder/settings" >"$folder/server.log" 2>&1 &
    server=$!
    until grep -qs 'ready for connections' "$folder/server.log"; do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    grep -qs 'ready for connections' "$folder/server.log" && echo ready
}
exec >&-

cat >/dev/null

if [ -n "${server-}" ]; then
    # Nobody will read the data.
    kill -KILL "$server" 2>/dev/null
    wait "$server" 2>/dev/null
fi
cd /
rm -rf "$folder"
