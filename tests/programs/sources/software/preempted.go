// Endless loops, file readers, children and collections: everything that waits for preemption.
// Prints "ready PID", works until standard input ends, then needs one more collection to finish.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
)

var sink, stop int64

func spin() {
	for n := 0; ; n++ {
		sink += int64(n) // no call in here: only a signal stops this loop
	}
}

func open() {
	for atomic.LoadInt64(&stop) == 0 {
		if f, err := os.OpenFile("file", os.O_RDWR|os.O_CREATE, 0o644); err == nil {
			f.WriteString("x")
			f.Close()
		} else {
			fmt.Println("open:", err)
			os.Exit(1)
		}
	}
}

func start() {
	for atomic.LoadInt64(&stop) == 0 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			fmt.Println("exec:", err)
			os.Exit(1)
		}
	}
}

func main() {
	runtime.GOMAXPROCS(8)
	for n := 0; n < 2; n++ {
		go spin()
	}
	for n := 0; n < 4; n++ {
		go open()
	}
	go start()
	go func() {
		for {
			runtime.GC()
		}
	}()
	fmt.Println("ready", os.Getpid())
	io.Copy(io.Discard, os.Stdin)
	atomic.StoreInt64(&stop, 1)
	runtime.GC()
	fmt.Println("done")
}
