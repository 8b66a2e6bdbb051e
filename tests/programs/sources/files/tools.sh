# Host files read through, changed, copied, packed, removed; new files beside them.
cat host/d1/f1 host/link | wc -c
echo appended >> host/d1/f11; sed -i 's/host/image/' host/d2/f12; rm host/d3/f13; mv host/d4 host/moved
mkdir -p tree/{a,b,c}/{1,2}; for i in $(seq 1 60); do echo "$i" > "tree/a/1/f$i"; done
ln tree/a/1/f1 tree/b/hard; ln -s ../a/1/f2 tree/b/soft; mkfifo tree/c/pipe 2>/dev/null && rm tree/c/pipe || true
touch -d '2001-02-03 04:05:06.789 UTC' tree/a/1/f3 tree/a; chmod 2750 tree/c; chmod 600 tree/a/1/f4
dd if=/dev/zero of=tree/big bs=4096 count=300 status=none; dd if=/dev/urandom bs=1000 count=1 status=none | cksum > /dev/null
truncate -s 5M tree/sparse; printf end | dd of=tree/sparse bs=1 seek=3000000 conv=notrunc status=none
cp -a tree copy; diff -r tree copy && echo same; stat -c '%n %a %h %Y' copy/a/1/f3; stat -c '%n %a %h' copy/b/hard copy/c copy/a
tar cf t.tar tree; mkdir out; tar xpf t.tar -C out; diff -r tree out/tree && echo untarred; rm t.tar; stat -c '%a %h %Y' out/tree/a/1/f3
tar czf t.tgz --sort=name --mtime=@0 --owner=0 --group=0 tree host; tar tzf t.tgz | wc -l; rm t.tgz
find . -type f | wc -l; find . -type l -printf '%p -> %l\n' | sort; find tree -name 'f1*' -size -2 | sort | head -n 3; find . -newer host/d0/f0 -type d | sort | head -n 4
find copy -type f -print0 | xargs -0 -P 2 -n 20 cksum | sort | cksum
rm -r copy; [ ! -e copy ] && echo removed; rm -r out/tree/a; ls out/tree
install -m 640 -D tree/a/1/f5 inst/deep/f5; stat -c %a inst/deep/f5; du --apparent-size -b inst/deep/f5 | cut -f 1
ls -la tree/b | wc -l; ls -i tree/b/hard tree/a/1/f1 | cut -d' ' -f1 | uniq | wc -l
sort -u -o sorted tree/a/1/f*; cmp sorted <(sort -u tree/a/1/f*) && echo sorted; split -l 10 sorted part.; cat part.* | cmp - sorted && rm part.*
gzip -n sorted; gunzip -t sorted.gz; zcat sorted.gz | wc -l; mv -n tree/big tree/sparse 2> /dev/null; ls tree; ln -sfn a tree/current; readlink tree/current
mv tree/b/hard host/d0/; rmdir host/d3 2>/dev/null || echo not empty; rm -rf host/d3; mkdir host/d3; echo replaced > host/d3/f13
mv host/d0/f5 host/d0/f10; cat host/d0/f10; cp --reflink=auto -p host/d1/f1 host/d1/f1.copy; rm host/link; echo plain > host/link
