package web

import (
	"context"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// handOver is a page that leads to the address that it is filled with.
var handOver = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>Berth</title><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={{.}}"></head>
<body><p><a href="{{.}}">Go to the page</a></p></body></html>
`))

// openBrowser shows an address in the person's browser, if there is one, and returns what cleans up after it. The address has a
// secret, and every user of the machine can read the arguments of a program: the browser is given a file that only this person can
// read, which redirects to it. A missing browser, or one that cannot read the file, is not an error: the address was printed.
func openBrowser(ctx context.Context, address string) (cleanUp func()) {
	program, args := "xdg-open", []string(nil)
	switch runtime.GOOS {
	case "darwin":
		program = "open"
	case "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return func() {}
	}
	file, cleanUp, err := handOverFile(address)
	if err != nil {
		return func() {}
	}
	cmd := exec.CommandContext(ctx, path, append(args, file)...)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
	return cleanUp
}

// handOverFile writes the page, in a directory of its own.
func handOverFile(address string) (path string, cleanUp func(), err error) {
	dir, err := os.MkdirTemp("", "virtctl-web-") // no one else can look into it
	if err != nil {
		return "", nil, fmt.Errorf("make room for the browser's page: %w", err)
	}
	cleanUp = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "open.html")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = handOver.Execute(f, address)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		cleanUp()
		return "", nil, fmt.Errorf("write the browser's page: %w", err)
	}
	return path, cleanUp, nil
}
