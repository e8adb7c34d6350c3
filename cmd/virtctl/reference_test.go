package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test -run ^TestReference$ . -update

const referencePage = "../../docs/reference/virtctl.md"

// TestReference holds the reference page to the commands it is written from.
func TestReference(t *testing.T) {
	var page bytes.Buffer
	writeReference(&page, newRoot("virtctl", streams{out: io.Discard, err: io.Discard}))
	if *update {
		if err := os.WriteFile(referencePage, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), page.String()); diff != "" {
		t.Errorf("run go generate ./cmd/virtctl (-want +got):\n%s", diff)
	}
}

func writeReference(w io.Writer, root *cobra.Command) {
	fmt.Fprint(w, "# virtctl\n\nWritten from the program's own help by `go generate ./cmd/virtctl`; do not edit.\n\n",
		root.Long, "\n\n",
		"Link or copy it as `kubectl-virt` into your `PATH` to have it as a kubectl plugin: `kubectl virt image-upload ...`.\n",
		"`virtctl completion --help` says how your shell completes its commands, and the names of machines.\n\n",
		"Every command ends with code 0 if it did what it was asked, with 1 and the reason on standard error if not, and with\n",
		"130 if ctrl-c ended it. Every command takes kubectl's flags for choosing a cluster (`--kubeconfig`, `--context`,\n",
		"`--namespace`, ...).\n")
	for _, c := range leaves(root) {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), indentTables(about(c)), c.UseLine())
		fmt.Fprintf(w, "\n| flag | default | |\n|---|---|---|\n")
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { writeFlag(w, f) })
		fmt.Fprintf(w, "\n```sh\n%s\n```\n", dedent(c.Example))
	}
}

// leaves returns the commands that do something.
func leaves(c *cobra.Command) []*cobra.Command {
	if c.Hidden {
		return nil
	}
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	var all []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, leaves(sub)...)
		}
	}
	return all
}

func about(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func writeFlag(w io.Writer, f *pflag.Flag) {
	if f.Name == "help" {
		return
	}
	name := "`--" + f.Name + "`"
	if f.Shorthand != "" {
		name += ", `-" + f.Shorthand + "`"
	}
	value := f.DefValue
	switch value {
	case "false", "[]", "":
		value = ""
	default:
		value = "`" + value + "`"
	}
	text := f.Usage
	if f.Deprecated != "" {
		text += "; deprecated, " + strings.TrimSuffix(f.Deprecated, ".")
	}
	fmt.Fprintf(w, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(text, "|", `\|`))
}

// indentTables makes lines that are already indented by two a code block of Markdown.
func indentTables(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			lines[i] = "  " + l
		}
	}
	return strings.Join(lines, "\n")
}

func dedent(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
