# The program on tests/data: what it prints and how it ends.
set -eu
hunt=$1

fail() { echo "program.sh: $1" >&2; exit 1; }

expect() {
    expected=$1; shift
    found=$("$@") || [ $? -eq 1 ] || fail "$* failed"
    [ "$found" = "$expected" ] || fail "$* printed: $found"
}

expect "tests/data/list.txt:2:March hare" "$hunt" -n 'ha[r]e$' tests/data/list.txt
expect "tests/data/list.txt:2
tests/data/poems/old/snark.txt:1
tests/data/poems/owl.txt:0" "$hunt" -c -i hare tests/data
expect "tests/data/poems/owl.txt" "$hunt" -l pussy-cat tests/data
expect "" "$hunt" walrus tests/data
expect "hunt $(cat VERSION)" "$hunt" -V

"$hunt" '[' tests/data 2> /dev/null && fail "a broken pattern was taken" || [ $? -eq 2 ]
"$hunt" x tests/missing 2> /dev/null && fail "a missing folder was found" || [ $? -eq 2 ]
