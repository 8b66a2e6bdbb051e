# soak.sh SECONDS PROGRAMS: everything at once, for a tenth of that time and then for all of it.
# After each it is quiet, says so with what is free, and waits for a line.
seconds=$1 programs=$2
set -u

# again NAME COMMAND...: until the time is up, each time in a new directory.
again() {
    local name=$1 count=0; shift
    while [ $SECONDS -lt $end ]; do
        mkdir "$name" && ( cd "$name" && "$@" ) > "$name.out" 2>&1 || {
            echo "$name: failed with $?"; cat "$name.out"; exit 1; }
        rm -r "$name" "$name.out"; count=$((count + 1))
    done
    echo "$name: $count times" >&2
}
# A storm of names, whose workers are killed; not its last, peaceful program.
storm() {
    local first children until
    "$programs/storm" 3 3 > storm.out & local all=$!
    until first=$(sed -n 's/^ready //p' storm.out) && [ -n "$first" ]; do
        kill -0 $all 2> /dev/null || break
    done
    until=$((SECONDS + 2))
    while [ $SECONDS -lt $until ]; do
        read -r -a children < "/proc/$first/task/$first/children"
        [ ${#children[@]} -gt 0 ] && kill -9 "${children[RANDOM % ${#children[@]}]}"
        sleep 0.01
    done 2> /dev/null
    wait $all
}
shells() {
    for n in 1 2 3 4 5 6 7 8; do
        [ "$(echo $n | cat | tr -d '\n' | wc -c)" = 1 ] && (exit 0) || exit 1
    done
}
build() {
    printf '#include <stdio.h>\nint main(void) { return puts("built") < 0; }\n' > a.c
    gcc -o a a.c && [ "$(./a)" = built ]
}
probe() {
    "$programs/probe" >> ../probes
}
phase() {
    end=$((SECONDS + $1))
    again tempest "$programs/tempest" 8000 &
    again flood "$programs/flood" 8 2 &
    again storm storm &
    again shells shells &
    again build build &
    again probe probe &
    for job in $(jobs -p); do wait "$job" || exit 1; done
    # What the dead held is given back a moment later.
    sleep 3
    # But for what the probes have written, in blocks of 4 KiB.
    local own=$(($(stat -c %b probes) / 8)) free; free=$(stat -f -c %f .)
    echo "$2 $((free + own)) $(stat -f -c %d .) $(wc -l < probes)"
    read -r line
}
: > probes
phase $((seconds / 10 + 3)) warm
phase "$seconds" worn
cat probes
rm probes
