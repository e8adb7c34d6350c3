// Command sample is the program of the container images that tests make machines of. It says what it was started as and with,
// serves a page, and ends with the status that it is asked for: by the argument exit=N, or by a request for /exit?status=N.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, "sample: "+format, args...) }

func main() {
	dir, _ := os.Getwd()
	host, _ := os.Hostname()
	say("args=%q uid=%d gid=%d dir=%s host=%s greeting=%q terminal=%t\n", os.Args[1:], os.Getuid(), os.Getgid(), dir, host,
		os.Getenv("GREETING"), terminal())
	for _, arg := range os.Args[1:] {
		verb, value, _ := strings.Cut(arg, "=")
		switch verb {
		case "list":
			list(value)
		case "write":
			say("write %s: %v\n", value, os.WriteFile(value, []byte("written"), 0o600))
		case "exit":
			exit(value)
		case "serve":
			serve(value)
		}
	}
}

// terminal says whether its input is a terminal of its own, which it can open by name.
func terminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

func list(root string) {
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil {
			say("%s %s\n", path, d.Type())
		}
		return nil
	})
}

func exit(status string) {
	n, err := strconv.Atoi(status)
	if err != nil {
		n = 99
	}
	os.Exit(n)
}

// serve answers until it is told to end.
func serve(address string) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		say("asked to end\n")
		os.Exit(0)
	}()
	say("serves %s\n", address)
	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "sample\n") })
	http.HandleFunc("GET /exit", func(_ http.ResponseWriter, r *http.Request) { exit(r.FormValue("status")) })
	say("%v\n", http.ListenAndServe(address, nil)) //nolint:gosec // a test's server
	os.Exit(98)
}
