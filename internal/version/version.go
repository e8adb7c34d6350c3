// Package version holds the version of a program. A release sets it when it links (Flags); anything else is "dev".
//
// It does not know the programs and imports only the standard library.
package version

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// The linker sets these three by name: see Flags.
var (
	version = "dev"
	commit  = ""
	date    = ""
)

// Info is a version and where it comes from.
type Info struct {
	// Version is the version of the release, such as v0.2.0, or dev.
	Version string
	// Commit and Date are the commit that it was made from and when that was made, in RFC 3339. A dev build has neither: what it is
	// made from may be in no commit.
	Commit, Date string
}

// Get returns what this program is.
func Get() Info { return Info{Version: version, Commit: commit, Date: date} }

// String is one line for people: the version, its commit and date where there are any, and what it was made with and for.
func (i Info) String() string {
	about := []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if i.Commit != "" {
		about = append([]string{"commit " + i.Commit, i.Date}, about...)
	}
	return fmt.Sprintf("%s (%s)", i.Version, strings.Join(about, ", "))
}

const variables = "github.com/berth-vm/berth/internal/version."

// Flags returns the linker's that make a program this version.
func (i Info) Flags() string {
	return strings.Join([]string{
		"-X", variables + "version=" + i.Version, "-X", variables + "commit=" + i.Commit, "-X", variables + "date=" + i.Date,
	}, " ")
}

// Asked reports whether a command line asks only for the version.
func Asked(args []string) bool {
	return len(args) == 1 && (args[0] == "--version" || args[0] == "-version")
}

// Answer prints the version and ends the program if its command line asks for that. Programs call it first.
func Answer() {
	if Asked(os.Args[1:]) {
		Print(os.Stdout)
		os.Exit(0)
	}
}

// Print writes the version as a line.
func Print(w io.Writer) { _, _ = fmt.Fprintln(w, Get()) }
