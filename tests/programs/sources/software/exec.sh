# Programs and scripts in the tree, under many names and descriptors.
cp /bin/cat mycat; echo content > file; ./mycat file
printf '#!/bin/sh\necho "script $0 $*"\n' > script; chmod +x script; ./script a b
printf '#!./script one\n' > nested; chmod +x nested; ./nested two
printf '#! /usr/bin/env python3\nimport sys\nprint(sys.argv)\n' > snake; chmod +x snake; ./snake x
ln -s mycat link; ./link file; mkdir bin; mv mycat bin/kitty; PATH=$PWD/bin:$PATH kitty file
./link file 2>/dev/null; echo "dangling $?"
echo 'echo no interpreter' > plain; chmod +x plain; ./plain
chmod -x script; ./script 2>/dev/null; echo "no x $?"; ./bin 2>/dev/null; echo "directory $?"
./absent 2>/dev/null; echo "absent $?"
printf '#!/absent/interpreter\n' > orphan; chmod +x orphan; ./orphan 2>/dev/null; echo "orphan $?"
printf '\177ELF' > broken; chmod +x broken; ./broken 2>/dev/null; echo "broken $?"
exec 9< file; cat <&9; exec 9<&-
env -i PATH=/usr/bin:/bin A=1 sh -c 'echo "$A ${B-unset}"'
(exec -a renamed bash -c 'echo "$0"')
bash -c 'cp bin/kitty bin/again; bin/again file; rm bin/again; echo gone'
echo 'int main(void){return 42;}' > m.c; gcc -o m m.c && ./m; echo "own program $?"
find . -name 'k*' -exec {} file \;
ls bin | xargs -n 1 -I% sh -c 'echo found %'
x=$(./bin/kitty < file); echo "$x"
