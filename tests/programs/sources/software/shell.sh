# What shell scripts do all day.
set -o pipefail; umask 022
seq 1 2000 | grep 7 | sort -r | uniq | sed -n 396,400p
cat <<EOF > here
one $((1 + 1)) $(echo three)
EOF
cat <<'EOF' >> here
not $expanded
EOF
cat here
while read -r a b; do echo "$b-$a"; done < here
paste -d, <(seq 1 3) <(seq 4 6)
tee >(wc -l > count) < here > /dev/null
for _ in $(seq 100); do [ -s count ] && break; sleep 0.05; done
cat count
words=$(tr ' ' '\n' < here | sort -u | wc -l); echo "words $words"
exec 5> five; echo to five >&5; exec 5>&-; cat five
exec 6<> here; read -r line <&6; echo "$line"; exec 6<&-
{ echo out; echo err >&2; } > both 2>&1; cat both
(cd /; pwd); mkdir -p a/b; cd a/b; basename "$PWD"; cd - > /dev/null
false || echo "status $?"; ! true || echo never
set -C; echo x > here 2> /dev/null || echo noclobber; set +C
printf '%s\n' * | sort | tr '\n' ' '; echo
for i in $(seq 1 30); do echo "$i" > "f$i"; done
cat f? f?? | sort -n | tail -n 1; rm f*; ls | wc -l
read -r x < <(echo substituted); echo "$x"
coproc CAT { cat; }; echo ping >&"${CAT[1]}"; read -r pong <&"${CAT[0]}"; echo "$pong"
eval "exec ${CAT[1]}>&-"; wait "$CAT_PID" 2> /dev/null || true
(set +o pipefail; yes | head -n 100000 | wc -l)
true | true; echo "${PIPESTATUS[@]}" "$(umask)"; umask 077; : > private; ls -l private | cut -c1-10
diff <(echo a) <(echo b) || true
[ here -nt absent ] && [ -d a/b ] && [ ! -e absent ] && echo tests
