# Builds, runs what was built, removes some of it, builds again: only what depends on it.
cd src
make -s -j2
cat > try.lua <<'LUA'
local f = assert(io.open("out.txt", "w"))
for i = 1, 1000 do f:write(i * i, "\n") end
f:close()
local sum = 0
for line in io.lines("out.txt") do sum = sum + tonumber(line) end
os.rename("out.txt", "sums.txt")
print(_VERSION, sum)
local code = assert(io.open("try.luac", "wb"))
code:write(string.dump(loadfile("try.lua")))
code:close()
LUA
./lua try.lua
./lua try.luac
rm ldo.o lua
make -s -j2
make -s -q && echo up to date
ls | LC_ALL=C sort | tr '\n' ' '
cksum lua liblua.a
