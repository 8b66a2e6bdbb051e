/* The crate carries Lua's library only: a program around it that runs one file. */
#include <stdio.h>
#include "lauxlib.h"
#include "lualib.h"

int main(int argc, char **argv) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    if (argc != 2 || luaL_dofile(state, argv[1])) {
        fprintf(stderr, "%s\n", argc == 2 ? lua_tostring(state, -1) : "usage: lua FILE");
        return 1;
    }
    lua_close(state);
    return 0;
}
