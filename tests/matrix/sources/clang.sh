# clang: objects, a shared and a static library, a precompiled header, errors told.
mkdir -p src; for i in $(seq 12); do echo "#include \"all.h\"
int f$i(int n) { struct pair p = { n, $i }; return sum(p); }" > "src/f$i.c"; done
echo '#pragma once
struct pair { int a, b; };
static inline int sum(struct pair p) { return p.a + p.b; }' > src/all.h
{ for i in $(seq 12); do echo "int f$i(int);"; done
  echo '#include <stdio.h>'; echo 'int main(void) { int n = 0;'
  for i in $(seq 12); do echo "n = f$i(n);"; done; echo 'printf("%d\n", n); return 0; }'; } > src/main.c
clang -O2 -fPIC -x c-header src/all.h -o src/all.h.pch
for i in $(seq 12); do clang -O2 -fPIC -include-pch src/all.h.pch -c "src/f$i.c" -o "src/f$i.o"; done
clang -shared -o libf.so src/f?.o src/f??.o
ar rc libf.a src/f?.o src/f??.o
clang src/main.c -L. -lf -Wl,-rpath,"$PWD" -o dynamic && ./dynamic
clang -g -O1 src/main.c libf.a -o static && ./static
clang -S -emit-llvm -O1 src/f1.c -o f1.ll && clang -c f1.ll -o f1.o && nm f1.o
printf 'int main() { return undeclared; }\n' > wrong.c
clang -c wrong.c 2> told || cat told
rm src/all.h.pch
