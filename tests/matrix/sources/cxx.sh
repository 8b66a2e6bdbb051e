# g++, ld, ar and their companions: templates, exceptions across a library, objects cut and joined.
cat > lib.cc <<'C'
#include <map>
#include <stdexcept>
#include <string>
int find(const std::string &name) {
    static const std::map<std::string, int> all = { { "one", 1 }, { "two", 2 } };
    auto at = all.find(name);
    if (at == all.end()) throw std::out_of_range("no " + name);
    return at->second;
}
C
cat > main.cc <<'C'
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>
int find(const std::string &);
int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([i] { std::ofstream("part" + std::to_string(i)) << std::string(i * 1000, 'x'); });
    for (auto &thread : threads) thread.join();
    std::ostringstream text;
    for (int i = 0; i < 4; i++) text << std::ifstream("part" + std::to_string(i)).rdbuf();
    std::cout << find("two") << ' ' << text.str().size() << '\n';
    try { find("three"); } catch (const std::out_of_range &error) { std::cout << error.what() << '\n'; }
}
C
g++ -O1 -fPIC -c lib.cc && g++ -shared -o liblib.so lib.o
g++ -O1 -c main.cc && g++ main.o -L. -llib -Wl,-rpath,"$PWD" -o dynamic && ./dynamic
ar rcs liblib.a lib.o && ar t liblib.a && g++ -static main.o liblib.a -o static && ./static
g++ -O1 -flto=2 main.cc lib.cc -o together && ./together
ld -r main.o lib.o -o joined.o && g++ joined.o -o joined && ./joined
strip -o bare joined && ./bare && cmp -s bare joined || echo stripped
objcopy --remove-section=.comment --add-section=note=lib.cc lib.o noted.o && nm -C noted.o | grep -c ' T find'
readelf -h bare | grep Type; readelf -SW noted.o | grep -c ' note '
g++ -x c++-header -o all.h.gch main.cc 2> /dev/null && rm all.h.gch && echo header
rm -f static part?
