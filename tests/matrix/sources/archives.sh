# gzip, xz and zstd round trips, and tar through each of them.
seq 1 50000 > numbers; cp numbers before
for tool in gzip 'xz -T2' 'zstd -q --rm'; do
    $tool numbers
    ls | sort | tr '\n' ' '
    case $tool in gzip) gzip -d numbers.gz ;; xz*) xz -d numbers.xz ;; *) zstd -q --rm -d numbers.zst ;; esac
    cmp numbers before && echo same
done
mkdir -p t/u; for i in $(seq 100); do head -c "$i" before > "t/u/$i"; done
for way in z J; do
    tar -c"$way"f t.tar t && mkdir "out$way" && tar -x"$way"f t.tar -C "out$way" && diff -r t "out$way/t" && echo whole
done
rm -r outz outJ t.tar before
