# pbzip2: compress and decompress in four threads, compare.
seq 1 400000 > numbers
cp numbers before
pbzip2 -p4 -b1 numbers
pbzip2 -d -p4 numbers.bz2
cmp numbers before && md5sum < numbers
rm numbers before
