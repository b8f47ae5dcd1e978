# Keeps a program in a folder for as long as somebody holds the other end of standard input, and
# removes the folder then. Argument: the folder. Each line of standard input is an order, and each is
# answered with a line:
#   run WORDS     runs a command to its end; its exit status
#   start WORDS   starts the program
#   alive         whether it runs: 0 or 1
#   stop SIGNAL   asks it to end, and waits until it has
#   crash         kills it and all that it started, as when a machine loses its power

# The reader of an answer may be gone before it is said. And where it is gone while somebody here is
# stopped, the system sends all of us a hang-up.
trap '' PIPE HUP

folder=$1
program=

# All that a process started, and they in turn.
descendants() {
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}

crash() {
    [ -n "$program" ] || return 0
    # A PostgreSQL server may be nobody's child: its supervisor lets go of it.
    roots="$program $(head -n 1 data/postmaster.pid 2>/dev/null)"
    # Stopped first, so that no more of them come up meanwhile.
    kill -STOP $roots 2>/dev/null
    doomed=$(for root in $roots; do descendants "$root"; done)
    kill -KILL $roots $doomed 2>/dev/null
    wait "$program" 2>/dev/null
    for process in $roots $doomed; do
        while kill -0 "$process" 2>/dev/null; do sleep 0.02; done
    done
    program=
}

while read -r order words; do
    case $order in
        run)
            (eval "exec $words") >>log 2>&1 </dev/null
            echo $?
            ;;
        start)
            (eval "exec $words") >>log 2>&1 </dev/null &
            program=$!
            echo 0
            ;;
        alive)
            kill -0 "$program" 2>/dev/null
            echo $?
            ;;
        stop)
            kill -s "$words" "$program" 2>/dev/null
            wait "$program" 2>/dev/null
            program=
            echo 0
            ;;
        crash)
            crash
            echo 0
            ;;
    esac
done

crash
cd /
rm -rf "$folder"
