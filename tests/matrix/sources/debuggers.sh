# strace sees the calls of a program that end it; gdb runs one to its end.
strace -f -o trace -e trace=exit_group true && grep -c exit_group trace
printf '#include <stdio.h>\nint main(void) { int answer = 42; puts("run"); return answer - 42; }\n' > p.c
gcc -g -O0 p.c -o p
gdb -q -nx -batch -ex 'handle SIGSYS nostop noprint pass' -ex run ./p 2> /dev/null | grep -E '^run|exited' | sed 's/process [0-9]*/process/'
rm -f p trace
