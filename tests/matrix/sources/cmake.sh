# cmake writes for ninja, ninja builds a library and a program, and builds nothing twice.
mkdir source
printf 'cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_library(l l.c)\nadd_executable(p p.c)\ntarget_link_libraries(p l)\n' > source/CMakeLists.txt
echo 'int l(void) { return 42; }' > source/l.c
printf '#include <stdio.h>\nint l(void);\nint main(void) { printf("%%d\\n", l()); return 0; }\n' > source/p.c
cmake -G Ninja -S source -B build > log
ninja -C build >> log
build/p
ninja -C build | tail -1
rm -r build log
