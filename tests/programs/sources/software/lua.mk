# Lua without its own makefile, which the crate does not carry: a library and a program.
CFLAGS = -O0 -std=gnu99 -DLUA_USE_POSIX
OBJECTS = $(patsubst %.c,%.o,$(filter-out main.c,$(wildcard *.c)))

lua: main.o liblua.a
	gcc -o $@ main.o liblua.a -lm

liblua.a: $(OBJECTS)
	ar rcs $@ $(sort $^)
	ranlib $@

# Dependencies as gcc writes them, moved into place.
%.o: %.c
	gcc $(CFLAGS) -MMD -MF $*.d.new -c -o $@ $<
	mv -f $*.d.new $*.d

-include $(wildcard *.d)

clean:
	rm -f *.o *.d *.a lua

.PHONY: clean
