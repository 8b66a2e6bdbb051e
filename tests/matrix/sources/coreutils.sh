# coreutils: what its programs do with files, one after the other.
umask 022
mkdir -p one/two/three && touch -d @1400000000 one/two/old && echo text > one/file
cp -a one copied && cp -rs "$PWD/one" linked && cp --reflink=auto --sparse=always one/file sparse
install -D -m 751 one/file deep/er/installed && stat -c '%A %s %n' deep/er/installed
ln one/file hard && ln -sr one/file relative && readlink relative && realpath --relative-to=. relative
stat -c '%h %s' hard; mv -n hard one/file; mv -b one/file hard; ls -1 one hard*
seq 1 100000 > numbers && shuf --random-source=numbers numbers > mixed
sort -n --buffer-size=200K --parallel=2 -T . mixed | cmp - numbers && echo sorted
split -n l/7 -d numbers piece. && cat piece.* | cmp - numbers && ls piece.* | wc -l
csplit -s -k numbers 500 '{3}' && wc -l xx* | tail -1
dd if=numbers of=blocks bs=4k conv=sparse,fsync status=none && dd if=blocks bs=1000 skip=3 count=2 status=none | cksum
dd if=/dev/zero of=blocks bs=1 count=0 seek=3M status=none && stat -c %s blocks && truncate -s -5 blocks && wc -c < blocks
sha256sum numbers mixed > sums && sha256sum -c sums && b2sum numbers | cut -c1-16
tac mixed | tail -2; nl numbers | tail -1; od -An -tx1 -N8 numbers; base64 numbers | md5sum | cut -c1-8
join <(sort numbers) <(seq 5 8) | paste -sd,; comm -12 <(seq 3 8) <(seq 5 9) | tr '\n' ' '; echo
cut -c2- numbers | uniq -c | sort -n | tail -1 | tr -s ' '; fold -w 3 numbers | wc -l; expand numbers | fmt | wc -l
seq 9 | tee a b >(wc -l > c) | tail -1; until [ -s c ]; do :; done; cat c; cmp a b
mkfifo pipe && (seq 5 > pipe &) && cat pipe && chmod 600 pipe && stat -c '%F %a' pipe
chmod -R u=rwX,go=rX,+t one && stat -c '%a %n' one one/two/old && chmod --reference=numbers one/two/old
timeout 0.2 sleep 9 || echo "timeout $?"; timeout -s KILL 0.2 sleep 9 || echo "killed $?"
nice -n 5 nice; env -i A=1 env; nohup true; stdbuf -oL echo line; test -k one && echo sticky
tail -n +1 -f --pid=$$ -s 0.05 a > followed & tailer=$!
echo more >> a; until grep -q more followed; do sleep 0.02; done; kill $tailer; wait $tailer || wc -l < followed
du -b --apparent-size numbers | cut -f1; ls -lL --time-style=+ relative 2> /dev/null || echo dangling
rm -r one/two && rmdir -p deep/er 2> /dev/null || rm -r deep; unlink a; shred -u -n 1 b && [ ! -e b ] && echo shredded
mktemp -d -p . | wc -c; ls -d tmp.* | wc -l; rmdir tmp.*; df . > /dev/null && sync . && pathchk one/x && echo end
rm -f pipe followed
