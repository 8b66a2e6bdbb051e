# dash: what /bin/sh is asked for by makefiles and package scripts.
cat > script <<'S'
set -eu
trap 'echo left $?' EXIT
trap 'echo told' USR1
kill -USR1 $$
here() { cat <<E
$1 and $(echo inner | tr a-z A-Z)
E
}
here one
for i in 1 2 3; do echo "$i"; done | while read -r n; do printf '%s,' "$n"; done; echo
( cd / && pwd ); [ "$PWD" != / ] && echo back
exec 3> out 4<> both; echo three >&3; echo four >&4; exec 3>&-; cat out both
x=abc.tar.gz; echo "${x%.*} ${x##*.} ${x#a} ${#x} $((7 * 6 % 5))"
case $x in *.gz) echo gz ;; *) echo other ;; esac
sleep 5 & child=$!; kill $child; wait $child || echo "ended $?"
false | true && echo piped; ! false && echo not
umask 077; : > private; ls -l private | cut -c1-10
read -r line < out; echo "$line"; set -- a 'b c' d; shift; echo "$# $1"; command -v cat
eval 'echo evaluated'; ulimit -n 100; (exit 7) || echo $?; exec sh -c 'exit 3'
S
dash script || echo "status $?"
dash -c 'i=0; while [ $i -lt 60 ]; do i=$((i + 1)); /bin/true; done; echo $i'
echo 'echo from stdin; exit 4' | dash || echo $?
