// An HTTP server, and who asks it: keep-alive connections of Go's own client.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func serve(address string) {
	page := make([]byte, 600)
	answer := func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }
	panic(http.ListenAndServe(address, http.HandlerFunc(answer)))
}

func ask(address string, connections int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	var answered atomic.Int64
	var counts, ends atomic.Bool
	var all sync.WaitGroup
	for n := 0; n < connections; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for !ends.Load() {
				response, err := client.Get("http://" + address + "/")
				if err != nil {
					panic(err)
				}
				bytes, err := io.Copy(io.Discard, response.Body)
				response.Body.Close()
				if err != nil || bytes != 600 || response.StatusCode != 200 {
					panic("a wrong answer")
				}
				if counts.Load() {
					answered.Add(1)
				}
			}
		}()
	}
	time.Sleep(time.Second)
	begun := time.Now()
	counts.Store(true)
	time.Sleep(2 * time.Second)
	fmt.Println("Requests/sec:", float64(answered.Load())/time.Since(begun).Seconds(), "all")
	ends.Store(true)
	all.Wait()
}

func main() {
	address := "127.0.0.1:" + os.Args[2]
	if os.Args[1] == "serve" {
		serve(address)
	}
	connections, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	ask(address, connections)
}
