# GNU make -j: a jobserver that makes below makes, and g++ -flto, take their turns from.
mkdir -p state sub{1,2,3}
cat > job <<'J'
#!/bin/sh
touch "state/$$"; ls state | wc -l >> "most.$2"; sleep 0.0$(($1 % 4 + 1)); rm "state/$$"; echo "$1" > "$2/done.$1"
J
chmod +x job
cat > Makefile <<'M'
all: sub1 sub2 sub3
sub1 sub2 sub3: ; +@cd .. 2> /dev/null; $(MAKE) -s -f sub.mk -C $(CURDIR) in=$@
.PHONY: all sub1 sub2 sub3
M
printf 'jobs := $(patsubst %%,job.%%,1 2 3 4 5 6 7 8 9 10 11 12)\nall: $(jobs)\njob.%%: ; @./job $* $(in)\n' > sub.mk
make -s -j4
ls sub?/done.* | wc -l
[ "$(sort -n most.* | tail -1)" -le 4 ] && echo 'never more than four'
[ "$(sort -n most.* | tail -1)" -gt 1 ] && echo 'more than one'
printf 'all: ; @sleep 0.1; exit 3\n' > fails.mk; make -s -j3 -f fails.mk 2> /dev/null || echo "status $?"
for i in $(seq 4); do echo "int f$i(int n) { return n + $i; }" > "f$i.c"; done
echo 'int f1(int), f2(int), f3(int), f4(int); int main() { return f1(f2(f3(f4(0)))); }' > main.c
printf 'program: f1.o f2.o f3.o f4.o main.o; +gcc -flto=jobserver -O1 -o $@ $^\n%%.o: %%.c; gcc -flto -O1 -c $<\n' > lto.mk
make -s -j3 -f lto.mk && { ./program || echo "program $?"; }
rm -r state most.* ./*.o
