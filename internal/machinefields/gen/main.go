// Command gen writes the tables of internal/machinefields into the page about machines, between the two lines that mark them.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/berth-vm/berth/internal/machinefields"
)

const (
	begin = "<!-- fields of machines: generated from internal/machinefields by `go generate ./internal/machinefields`; do not edit -->\n"
	end   = "<!-- end of the fields of machines -->\n"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: gen PAGE.md")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatalf("read the page of machines: %v", err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		log.Fatalf("the page does not have the lines\n%sand\n%s", begin, end)
	}
	page := before + begin + tables() + end + after
	if err := os.WriteFile(os.Args[1], []byte(page), 0o600); err != nil {
		log.Fatalf("write the page of machines: %v", err)
	}
}

func tables() string {
	return "\n## VirtualMachine\n\n" + table(machinefields.Machine) +
		"\n## VirtualMachineInstance\n\nThe template of a VirtualMachine has the same fields.\n\n" + table(machinefields.Instance) + "\n"
}

func table(rows []machinefields.Field) string {
	var out strings.Builder
	out.WriteString("| field | status | note |\n|---|---|---|\n")
	for _, f := range rows {
		note := f.Note
		if f.Unless != "" {
			note += "; `" + f.Unless + "` is accepted"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", f.Path, f.Effect, note)
	}
	return out.String()
}
