# rsync: a tree with links, modes and times; a second run moves nothing.
mkdir -p one/deep/er
for i in $(seq 300); do echo "$i" > "one/deep/$i"; done
ln -s deep one/link; ln one/deep/1 one/deep/er/hard; chmod 640 one/deep/2; touch -d @1500000000 one/deep/3
rsync -aH one/ two/
diff -r one two && echo same
stat -c '%a %Y %h' two/deep/2 two/deep/3 two/deep/1 | sed '1s/ [0-9]* / - /;3s/ [0-9]* / - /'
rsync -aH --itemize-changes one/ two/ | wc -l
echo more >> one/deep/5; rsync -aH --itemize-changes one/ two/ | cut -c12-
rm -r two
