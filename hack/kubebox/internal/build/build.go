// Package build compiles the programs of a cluster with the Go tool and shows how far it is. It uses nothing but the standard
// library, because it also builds kubebox itself.
package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A Program is built from a package of a module.
type Program struct {
	Name    string
	Module  string // the directory of its go.mod, relative to hack/kubebox
	Package string
}

// The programs that make up a cluster.
var (
	Kubebox            = Program{"kubebox", ".", "."}
	CoreDNS            = Program{"coredns", "coredns", "."}
	SnapshotController = Program{"snapshot-controller", "csi", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller"}
)

// flags are the flags that the product is built with, so that both share Go's build cache.
var flags = []string{"-trimpath", "-buildvcs=false"}

// Build compiles a program to the file out. source is the directory hack/kubebox.
func Build(ctx context.Context, source string, p Program, out string, progress io.Writer) error {
	began, total := time.Now(), 0
	if _, err := os.Stat(out); errors.Is(err, os.ErrNotExist) {
		total = countPackages(ctx, source, p)
	}
	args := append([]string{"build", "-v"}, flags...)
	args = append(args, "-ldflags=-s -w "+versionFlags(source), "-o", out, p.Package)
	cmd := command(ctx, source, p, args...)
	output, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("make directory of %s: %w", p.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w: is Go installed and on PATH?", p.Name, err)
	}
	said := report(output, p.Name, total, began, progress)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.Name, err, said)
	}
	if took := time.Since(began); took > 5*time.Second {
		fmt.Fprintf(progress, "built %s in %s\n", p.Name, took.Round(time.Second))
	}
	return nil
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\d+)$`)

// versionFlags tell the components of Kubernetes which version they are, as a release build does; the modules do not.
func versionFlags(source string) string {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return ""
	}
	m := kubernetesVersion.FindSubmatch(mod)
	if m == nil {
		return ""
	}
	const pkg = "k8s.io/component-base/version"
	return fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, m[1], m[2], m[3])
}

// ModuleDir returns where the Go tool keeps the files of a module that a program is built from.
func ModuleDir(ctx context.Context, source string, p Program, module string) (string, error) {
	out, err := command(ctx, source, p, "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func command(ctx context.Context, source string, p Program, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(source, p.Module)
	// the compiler's own garbage collector costs a sixth of a build's time at its default
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOGC=400")
	return cmd
}

// countPackages returns how many packages the program has; 0 if that cannot be told, which only costs a nicer message.
func countPackages(ctx context.Context, source string, p Program) int {
	out, err := command(ctx, source, p, "list", "-deps", p.Package).Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}

const every = 10 * time.Second

// report reads what `go build -v` says, which is one line per package it compiles, and tells now and then how far it is. It returns
// the lines that are not names of packages: the errors.
func report(output io.Reader, name string, total int, began time.Time, progress io.Writer) string {
	var said strings.Builder
	next, compiled := every, 0
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " \t#") {
			if !strings.HasPrefix(line, "go: downloading") {
				said.WriteString(line + "\n")
			}
			continue
		}
		compiled++
		if elapsed := time.Since(began); elapsed >= next {
			next = elapsed.Truncate(every) + every
			of := ""
			if total > 0 {
				of = fmt.Sprintf(" of at most %d", total)
			}
			fmt.Fprintf(progress, "building %s: %d%s packages compiled, %s\n", name, compiled, of, elapsed.Round(time.Second))
		}
	}
	return said.String()
}
