// Endless goroutines that only preemption stops, a collector that must stop them all, children
// that come and go. With SIGURG from outside a runtime that loses one signal hangs here.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

func main() {
	var spins, opens, children, collections atomic.Int64
	for i := 0; i < 2; i++ {
		go func() {
			for x := 0; ; x++ {
				if x&0xffffff == 0 {
					spins.Add(1)
				}
			}
		}()
	}
	for i := 0; i < 6; i++ {
		go func() {
			for {
				if f, err := os.Open("/dev/null"); err == nil {
					f.Close()
					opens.Add(1)
				}
			}
		}()
	}
	go func() {
		for {
			if exec.Command("/bin/true").Run() == nil {
				children.Add(1)
			}
		}
	}()
	go func() {
		for {
			runtime.GC()
			collections.Add(1)
		}
	}()
	fmt.Println("running")
	last := int64(-1)
	end := time.Now().Add(3 * time.Second)
	for time.Now().Before(end) {
		time.Sleep(500 * time.Millisecond)
		now := collections.Load()
		if now == last {
			fmt.Println("the collector stands still")
			os.Exit(1)
		}
		last = now
	}
	fmt.Println("done", spins.Load() > 0, opens.Load() > 0, children.Load() > 0, last > 0)
}
