// An HTTP server of Go, and its clients: `serve PORT`, `ask PORT`.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	clients  = 30
	requests = 80
)

func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprint(w, len(body), err)
}

func fail(why ...any) {
	fmt.Println(why...)
	os.Exit(1)
}

func main() {
	at := "127.0.0.1:" + os.Args[2]
	if os.Args[1] == "serve" {
		fail(http.ListenAndServe(at, http.HandlerFunc(answer)))
	}
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	var all sync.WaitGroup
	for k := 0; k < clients; k++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < requests; i++ {
				size := (i * k * 7) % 20000
				body := strings.NewReader(strings.Repeat("a", size))
				reply, err := client.Post("http://"+at, "t", body)
				if err != nil {
					fail(err)
				}
				said, err := io.ReadAll(reply.Body)
				reply.Body.Close()
				if want := fmt.Sprint(size, nil); err != nil || string(said) != want {
					fail("got", string(said), "not", want, err)
				}
			}
		}()
	}
	all.Wait()
	fmt.Println("answered", clients*requests)
}
