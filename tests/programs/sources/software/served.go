// An HTTP server and its clients in one program: TCP over IPv4 and IPv6, and a unix socket.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	clients  = 30
	requests = 150
)

func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprint(w, len(body), err)
}

func main() {
	for _, at := range [][2]string{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}, {"unix", "served.sock"}} {
		listener, err := net.Listen(at[0], at[1])
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		go http.Serve(listener, http.HandlerFunc(answer))
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, at[0], listener.Addr().String())
		}
		transport := &http.Transport{MaxIdleConnsPerHost: clients, DialContext: dial}
		client := &http.Client{Transport: transport, Timeout: 20 * time.Second}
		var all sync.WaitGroup
		for k := 0; k < clients; k++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := 0; i < requests; i++ {
					size := (i * k * 7) % 20000
					reply, err := client.Post("http://x/", "t", strings.NewReader(strings.Repeat("a", size)))
					if err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
					body, err := io.ReadAll(reply.Body)
					reply.Body.Close()
					if want := fmt.Sprint(size, nil); err != nil || string(body) != want {
						fmt.Println("got", string(body), "not", want, err)
						os.Exit(1)
					}
				}
			}()
		}
		all.Wait()
		fmt.Println(at[0])
		transport.CloseIdleConnections()
		listener.Close()
	}
}
