// Command fuzz runs every fuzz target of Berth, of the disk driver and of the libraries for a while, one after the other, and stops at the first that
// finds something. It does not know what a target tests: it finds them in the sources.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

type target struct{ dir, name string }

var declaration = regexp.MustCompile(`^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

func main() {
	each := flag.Duration("time", time.Minute, "how long each target runs")
	only := flag.String("only", "", "run targets whose package or name contains this")
	flag.Parse()
	var targets []target
	for _, module := range []string{".", "driver", "pkg/claim", "pkg/inflate", "pkg/lzma"} {
		found, err := find(module)
		if err != nil {
			fmt.Fprintln(os.Stderr, "fuzz:", err)
			os.Exit(1)
		}
		targets = append(targets, found...)
	}
	ran := 0
	for _, t := range targets {
		if !strings.Contains(t.dir+" "+t.name, *only) {
			continue
		}
		ran++
		if err := run(t, *each); err != nil {
			fmt.Fprintf(os.Stderr, "fuzz: %s in %s: %v\n", t.name, t.dir, err)
			os.Exit(1)
		}
	}
	if ran == 0 {
		fmt.Fprintf(os.Stderr, "fuzz: no target matches %q\n", *only)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stdout, "fuzz: %d targets, %s each, nothing found\n", ran, *each)
}

func run(t target, each time.Duration) error {
	start := time.Now()
	cmd := exec.Command("go", "test", "-vet=off", ".", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", each.String(),
		"-fuzzminimizetime", "5x") // or minimising uses up a short run
	cmd.Dir = t.dir // of whichever module it is
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && !ranOut(out.String()) {
		_, _ = out.WriteTo(os.Stderr)
		return err
	}
	fmt.Fprintf(os.Stdout, "ok   %-50s %-28s %s\n", t.dir, t.name, time.Since(start).Round(time.Second))
	return nil
}

// ranOut reports whether the time was over, nothing else. Go's fuzzer sometimes reports its own deadline as if it were a finding;
// a real one comes with the input that fails.
func ranOut(said string) bool {
	return strings.Contains(said, "    context deadline exceeded\n") && !strings.Contains(said, "Failing input written to")
}

// find reads the test files below dir. Folders with a go.mod of their own are other modules.
func find(dir string) ([]target, error) {
	var out []target
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != dir && (err == nil || d.Name()[0] == '.') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := declared(path)
		out = append(out, found...)
		return err
	})
	return out, err
}

func declared(path string) ([]target, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []target
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := declaration.FindStringSubmatch(lines.Text()); m != nil {
			out = append(out, target{dir: filepath.Dir(path), name: m[1]})
		}
	}
	return out, lines.Err()
}
