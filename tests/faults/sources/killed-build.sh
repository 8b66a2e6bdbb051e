# Builds again and again while processes are killed, until the file $1 is there; then once more in
# peace. Natively the driver is the started process itself, so it must not exec anything.
echo "ready $$"
rounds=0
while [ ! -e "$1" ]; do
  make -s clean > /dev/null 2>&1
  make -s -j2 > /dev/null 2>&1
  rounds=$((rounds + 1))
done
echo stopping
read -r _
make -s clean && rm -f ./*.new && make -s -j2 || exit 1
echo 'print("built", 6 * 7)' > try.lua
./lua try.lua || exit 1
rm try.lua
