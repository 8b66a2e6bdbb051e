//! The project that is built: as many C files as wanted, each with some functions to optimise and
//! standard headers; a program of all of them, which is run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Functions of a file: on a machine of 2020 it takes a tenth of a second.
const FUNCTIONS: u32 = 6;
/// What is made, and is removed before each build.
pub const MADE: &str = "build";
/// What the program says is put here.
pub const SAID: &str = "build/said";

/// Writes it.
pub fn write(place: &Path, files: u32) -> anyhow::Result<()> {
    fs::create_dir_all(place.join("src"))?;
    let declared: String = (0..files).map(|n| format!("long f{n}(long);\n")).collect();
    let headers = ["stdio", "stdlib", "string", "math", "errno", "time"];
    let headers: String = headers.iter().map(|name| format!("#include <{name}.h>\n")).collect();
    fs::write(place.join("src/all.h"), headers + &declared)?;
    for n in 0..files {
        fs::write(place.join(format!("src/f{n}.c")), file(n))?;
    }
    let mut main = "#include \"all.h\"\nint main(void) {\n  long s = 0;\n".to_owned();
    for n in 0..files {
        let _ = writeln!(main, "  s += f{n}({n});");
    }
    main += "  printf(\"%ld\\n\", s);\n  return 0;\n}\n";
    fs::write(place.join("src/main.c"), main)?;
    let rules = "objects := $(patsubst src/%.c,build/%.o,$(wildcard src/*.c))\n\
                 build/said: build/program\n\t./$< > $@\n\
                 build/program: $(objects)\n\t$(LINK) -o $@ $^ -lm\n\
                 build/%.o: src/%.c src/all.h | build\n\t$(CC) -O2 -c -o $@ $<\n\
                 build:\n\tmkdir build\n\
                 LINK := gcc\n";
    Ok(fs::write(place.join("Makefile"), rules)?)
}

fn file(n: u32) -> String {
    let mut text = "#include \"all.h\"\n".to_owned();
    for g in 0..FUNCTIONS {
        let (a, b, c) = (n + g + 3, 2 * g + 1, g % 7 + 2);
        let _ = write!(
            text,
            "static long g{g}(long x, char *t, double *d) {{\n  long s = x;\n\
             \x20 for (int i = 0; i < {a}; i++) {{\n    t[i & 63] = (char)(s >> (i & 7));\n\
             \x20   d[i & 15] = d[(i + {b}) & 15] * {c}.5 + (double)s;\n\
             \x20   switch ((s ^ i) % {c}) {{\n\
             \x20     case 0: s += {b} * i; break;\n      case 1: s ^= t[(i * {c}) & 63]; break;\n\
             \x20     case 2: s -= (long)d[i & 15]; break;\n      default: s = s * {a} + i;\n\
             \x20   }}\n\
             \x20   if (s % {a} == 0) s += snprintf(t, 64, \"%ld %d\", s, i);\n  }}\n\
             \x20 return s;\n}}\n"
        );
    }
    let _ = writeln!(text, "long f{n}(long x) {{\n  char t[64] = {{0}};\n  double d[16] = {{0}};");
    for g in 0..FUNCTIONS {
        let _ = writeln!(text, "  x += g{g}(x + {g}, t, d);");
    }
    text + "  return x;\n}\n"
}
