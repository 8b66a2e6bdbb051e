// Goroutines write, rename and read back files, and start programs meanwhile.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
)

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func work(n int) string {
	dir := fmt.Sprintf("out/d%d", n%7)
	check(os.MkdirAll(dir, 0o755))
	name := filepath.Join(dir, fmt.Sprintf("f%03d", n))
	data := bytes.Repeat([]byte(fmt.Sprintf("line %d\n", n)), 300)
	check(os.WriteFile(name+".tmp", data, 0o644))
	check(os.Rename(name+".tmp", name))
	f, err := os.Open(name)
	check(err)
	back, err := io.ReadAll(f)
	check(err)
	check(f.Close())
	if !bytes.Equal(data, back) {
		check(fmt.Errorf("%s: %d bytes back, not %d", name, len(back), len(data)))
	}
	return fmt.Sprintf("%x", sha256.Sum256(back))[:12]
}

func main() {
	var wg sync.WaitGroup
	sums := make([]string, 100)
	for n := range sums {
		wg.Add(1)
		go func(n int) {
			defer wg.Done()
			sums[n] = work(n)
			if n%10 == 0 {
				runtime.GC()
			}
		}(n)
	}
	said := make([]string, 8)
	for n := range said {
		wg.Add(1)
		go func(n int) {
			defer wg.Done()
			out, err := exec.Command("sh", "-c", fmt.Sprintf("echo child %d | tr a-z A-Z", n)).Output()
			check(err)
			said[n] = strings.TrimSpace(string(out))
		}(n)
	}
	wg.Wait()
	fmt.Println(strings.Join(sums, " "))
	fmt.Println(strings.Join(said, " "))
	var names []string
	check(filepath.Walk("out", func(path string, info os.FileInfo, err error) error {
		names = append(names, path)
		return err
	}))
	sort.Strings(names)
	fmt.Println(len(names), names[len(names)-1])
	_, err := os.Open("absent")
	fmt.Println(err, os.IsNotExist(err))
	check(os.RemoveAll("out/d0"))
	link, err := os.Readlink("/proc/self/exe")
	check(err)
	fmt.Println(filepath.Base(link))
}
