// bomber PID SECONDS: SIGURG to every thread of PID, again and again.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	pid, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.Atoi(os.Args[2])
	sent := 0
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for round := 0; round < 20; round++ {
			for _, entry := range threads {
				thread, _ := strconv.Atoi(entry.Name())
				if syscall.Tgkill(pid, thread, syscall.SIGURG) == nil {
					sent++
				}
			}
			time.Sleep(50 * time.Microsecond)
		}
	}
	if sent == 0 {
		os.Exit(1)
	}
}
