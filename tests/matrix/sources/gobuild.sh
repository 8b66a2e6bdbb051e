# go build and go test; the compiled standard library is the user's, on the host.
export GOFLAGS=-mod=mod GOPROXY=off GO111MODULE=on
mkdir m && cd m
printf 'module m\n\ngo 1.18\n' > go.mod
printf 'package main\n\nimport "os"\n\nfunc Twice(n int) int { return 2 * n }\n\nfunc main() { os.WriteFile("made", []byte("go\\n"), 0o644) }\n' > main.go
printf 'package main\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n\tif Twice(2) != 4 {\n\t\tt.Fatal()\n\t}\n}\n' > main_test.go
go build -o p . && ./p && cat made
go test -count=1 . | cut -f1,2
cd .. && rm -rf m
