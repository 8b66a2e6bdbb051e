# javac and java: files, threads, a child process.
cat > Main.java <<'X'
import java.nio.file.*;
import java.util.*;
public class Main {
    public static void main(String[] args) throws Exception {
        Path dir = Files.createDirectories(Path.of("made/here"));
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 4; t++) {
            int id = t;
            Thread thread = new Thread(() -> {
                try {
                    for (int i = 0; i < 100; i++) Files.writeString(dir.resolve(id + "-" + i), "x".repeat(i));
                } catch (Exception problem) { System.out.println(problem); }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        long bytes = 0;
        try (var files = Files.list(dir)) { for (Path file : (Iterable<Path>) files::iterator) bytes += Files.size(file); }
        System.out.println(bytes);
        Process child = new ProcessBuilder("sh", "-c", "ls made/here | wc -l; exit 3").inheritIO().start();
        System.out.println(child.waitFor());
    }
}
X
javac Main.java && java -cp . Main && rm -r made Main.class
